// The page's data: unpacks the block that `numapilot report --html` writes (layout: docs/report.md).

/** A value with its 95 % interval: value, low, high. */
export type Estimate = readonly [value: number, low: number, high: number];
/** Words, and whether they are strong. */
export type Words = readonly [text: string, isStrong: boolean];
/** A place that a link begins or ends at. */
export type Endpoint = { node: number } | { router: number };

export interface Recording {
    trace: string;
    command: string[];
    machine: string;
    node_count: number;
    is_simulated: boolean;
    /** What the figures are of; "other-host": a model was named that the engine did not simulate. */
    origin: "simulated" | "measured" | "other-host";
    engine: string;
    placement: string;
    program_time_ns: number;
    wall_time_ns: number;
    process_count: number;
    thread_count: number;
    object_count: number;
    notes: string[];
}

export interface Level {
    time_bins: number;
    instances: number;
    sites: number;
    stacks: number;
    threads: number;
}

export interface Grain {
    kind: "samples" | "cells";
    level: Level | null;
    bin_ns: number;
    /** Width of the slices of page maps and of latencies, which cells have: wider than `bin_ns`. */
    page_bin_ns: number;
    latency_bin_ns: number;
    rows: number;
    samples: number;
    folded: { objects: number; stacks: number; threads: number };
    instances: number;
    instances_listed: number;
}

export interface MachineNode {
    id: number;
    x: number;
    y: number;
    socket: number | null;
    cpus: number;
    memory_bytes: number;
    memory_kind: string | null;
    memory_bandwidth_bytes_per_s: number | null;
}

export interface MachineLink {
    id: number;
    from: Endpoint;
    to: Endpoint;
    bandwidth_bytes_per_s: number;
    latency_ns: number | null;
    kind: string;
}

export interface Machine {
    name: string;
    width: number;
    height: number;
    card_width: number;
    card_height: number;
    nodes: MachineNode[];
    routers: { name: string; x: number; y: number }[];
    links: MachineLink[];
    routes: [home: number, from: number, paths: number[][]][];
}

export interface Imbalance {
    sample: Estimate;
    population: Estimate;
}

export interface Totals {
    source: "counted" | "sampled";
    samples: number;
    accesses: Estimate;
    remote_accesses: Estimate;
    remote_share: Estimate;
    local_share: Estimate;
    write_share: Estimate;
    program_accesses: number | null;
    cache_transfers: number | null;
    served: Estimate[];
    imbalance: Imbalance;
    duration: number;
}

export type Pattern = "too-few-samples" | "homes-unknown" | "local" | "private-remote" | "used-elsewhere" | "shared-read" | "shared-written";

export interface DecisionRow {
    key: { site: number } | { object: number } | "unknown";
    kind: string;
    name: string;
    place: string;
    function: string;
    instances: number;
    bytes: number;
    allocated_instances: number;
    total_allocated_bytes: number;
    peak_live_bytes: number;
    peak_live_instances: number;
    samples: number;
    accesses: Estimate;
    share: Estimate;
    share_of_remote: Estimate;
    remote: Estimate;
    /** Of its accesses, the share with a known home node. */
    known_homes: number;
    local: Estimate;
    avoidable_by_pinning: Estimate | null;
    avoidable_by_allocating_elsewhere: Estimate;
    best_node: number | null;
    from_node: Estimate[];
    on_node: Estimate[];
    by_allocator: Estimate | null;
    before_others: Estimate | null;
    writes: Estimate;
    read_only_bound: number | null;
    threads: number;
    nodes: number;
    mean_latency_cycles: number | null;
    pattern: Pattern;
}

/** What was done with some heap blocks; null where the trace does not say. */
export interface HeapUse {
    allocations: number;
    reallocations: number;
    allocated_bytes: number;
    allocations_per_second: number | null;
    bytes_per_second: number | null;
    frees: number;
    remote_frees: number | null;
    median_lifetime_ns: number | null;
    left_blocks: number;
    left_bytes: number;
    allocating_threads: number;
    freeing_threads: number | null;
}

export interface HeapSite extends HeapUse {
    site: number;
    name: string;
    place: string;
    function: string;
    at_peak_bytes: number;
    peak_live_bytes: number;
    peak_live_blocks: number;
}

export interface Heap {
    total: HeapUse;
    peak_bytes: number;
    peak_blocks: number;
    peak_time: number | null;
    site_count: number;
    sites: HeapSite[];
}

/** Estimates from the sampled objects of a site of Java, or of all. */
export interface SampledUse {
    samples: number;
    allocations: Estimate;
    allocated_bytes: Estimate;
    at_peak_bytes: Estimate;
    left_bytes: Estimate;
    allocating_threads: number;
}

export interface SampledSite extends SampledUse {
    site: number;
    name: string;
    place: string;
    function: string;
}

export interface SampledHeap {
    interval_bytes: [least: number, most: number];
    total: SampledUse;
    peak_time: number;
    site_count: number;
    sites: SampledSite[];
}

export interface ThreadRow {
    thread: number;
    process: number;
    tid: number;
    name: string;
    start_function: string;
    cpu: number | null;
    node: number | null;
    start: number;
    end: number | null;
    samples: number;
    accesses: Estimate;
    share: Estimate;
    remote: Estimate;
    on_node: Estimate[];
    writes: Estimate;
    wait_cycles: number | null;
    top_site: number | null;
}

export interface FunctionRow {
    function: string;
    module: string;
    file: string;
    line: number;
    samples: number;
    accesses: Estimate;
    share: Estimate;
    remote: Estimate;
    writes: Estimate;
    top_site: number | null;
}

export interface Process {
    index: number;
    pid: number;
    exe: string;
    arguments: string[];
    start: number;
    end: number | null;
}

export interface Head {
    format: string;
    version: number;
    tool: string;
    recording: Recording;
    limits: string[];
    filtered: boolean;
    /** What the rows are: "memory accesses" or "page faults". */
    counted: string;
    grain: Grain;
    line_sampling: number;
    clock_khz: number;
    start_ns: number;
    duration_ns: number;
    nodes: number[];
    has_memory: boolean[];
    machine: Machine | null;
    headline: { totals: Totals; top: DecisionRow | null; verdict: string };
    verdict: Words[];
    findings: { site: number | null; says: Words[]; advice: string; evidence: string[] }[];
    matrix: { nodes: number[]; accesses: Estimate[][]; source: string };
    site_count: number;
    sites: DecisionRow[];
    threads: ThreadRow[];
    function_count: number;
    functions: FunctionRow[];
    heap: Heap | null;
    sampled_heap: SampledHeap | null;
    /** Whether allocations were recorded and no accesses. */
    heap_only: boolean;
    marks: [time: number, text: string][];
    processes: Process[];
    strings: string[];
    definitions: string;
    columns: Record<string, [kind: "u8" | "u16" | "u32" | "f64", offset: number, length: number]>;
}

/** Columns by name. "Not known" is -1 in whole numbers and NaN in others. */
export class Columns {
    /** Views ask at every change of a filter. */
    private readonly read = new Map<string, Int32Array | Float64Array>();

    constructor(
        private readonly head: Head,
        private readonly buffer: ArrayBuffer,
        private readonly base: number,
    ) {}

    private raw(name: string): Uint8Array | Uint16Array | Uint32Array | Float64Array {
        const entry = this.head.columns[name];
        if (!entry) throw new Error(`the page's data has no column ${name}`);
        const [kind, offset, length] = entry;
        switch (kind) {
            case "u8":
                return new Uint8Array(this.buffer, this.base + offset, length);
            case "u16":
                return new Uint16Array(this.buffer, this.base + offset, length);
            case "u32":
                return new Uint32Array(this.buffer, this.base + offset, length);
            case "f64":
                return new Float64Array(this.buffer, this.base + offset, length);
        }
    }

    ints(name: string): Int32Array {
        const known = this.read.get(name);
        if (known instanceof Int32Array) return known;
        const raw = this.raw(name);
        if (raw instanceof Float64Array) throw new Error(`column ${name} should hold whole numbers`);
        const none = 2 ** (8 * raw.BYTES_PER_ELEMENT) - 1;
        const values = new Int32Array(raw.length);
        for (let i = 0; i < raw.length; i++) values[i] = raw[i] === none ? -1 : raw[i];
        this.read.set(name, values);
        return values;
    }

    numbers(name: string): Float64Array {
        const known = this.read.get(name);
        if (known instanceof Float64Array) return known;
        const raw = this.raw(name);
        const values = raw instanceof Float64Array ? raw : Float64Array.from(raw);
        this.read.set(name, values);
        return values;
    }
}

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
}

/** Unpacks the text. Throws where it is not whole. */
export async function unpack(text: string): Promise<{ head: Head; columns: Columns }> {
    const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as Head;
    if (head.format !== "numapilot-html" || head.version !== 1) throw new Error("the page's data has another version than its script");
    return { head, columns: new Columns(head, buffer, 4 + length) };
}
