// The trace as the views see it: rows to filter, and what their numbers mean.

import { fileName, hex } from "./format";
import type { Columns, DecisionRow, FunctionRow, Head, Pattern } from "./payload";

export const WRITE = 1;
export const HAS_ALLOCATOR = 2;
export const BY_ALLOCATOR = 4;
export const BEFORE_OTHERS = 8;
/** `Rows.reach`: home or node unknown. */
export const UNKNOWN = 0;
export const LOCAL = 1;
export const REMOTE = 2;

/** `Model.keyKind`. */
export const REST_OF_SITE = 1;
export const OTHER_OBJECTS = 2;

/** Samples, or cells of samples; one list per field. -1: not known or folded. */
export interface Rows {
    count: number;
    time: Float64Array;
    thread: Int32Array;
    key: Int32Array;
    site: Int32Array;
    instance: Int32Array;
    code: Int32Array;
    leaf: Int32Array;
    from: Int32Array;
    home: Int32Array;
    flags: Int32Array;
    reach: Uint8Array;
    samples: Int32Array;
    weight: Float64Array;
    variance: Float64Array;
    page: Int32Array;
    latency: Int32Array;
}

export interface Site {
    index: number;
    id: number;
    name: string;
    kind: string;
    function: string;
    file: string;
    line: number;
    module: string;
    place: string;
}

export interface Instances {
    count: number;
    id: Int32Array;
    site: Int32Array;
    stack: Int32Array;
    thread: Int32Array;
    node: Int32Array;
    samples: Int32Array;
    bytes: Float64Array;
    birth: Float64Array;
    death: Float64Array;
    weight: Float64Array;
    variance: Float64Array;
    known: Float64Array;
    remote: Float64Array;
    writes: Float64Array;
    address(index: number): string;
}

export interface Fn {
    index: number;
    name: string;
    module: string;
    file: string;
}
export interface Frame {
    fn: number;
    line: number;
    inlined: boolean;
    file: string;
}

export const PATTERNS: Record<Pattern, string> = {
    "too-few-samples": "too few samples to say",
    "homes-unknown": "home node unknown",
    local: "local already",
    "private-remote": "private, placed elsewhere",
    "used-elsewhere": "used from one other node",
    "shared-read": "shared, hardly written",
    "shared-written": "shared and written",
};

export class Model {
    readonly rows: Rows;
    /** Per row: its thread, folded ones in a group past the last thread; and zero, the group of everything. */
    readonly threadGroup: Int32Array;
    readonly oneGroup: Int32Array;
    /** Per row: its slice of time. */
    readonly rowBin: Int32Array;
    /** Accesses that all rows stand for. */
    readonly allWeight: number;
    /** The remote ones among them. */
    readonly remoteWeight: number;
    readonly sites: Site[];
    readonly instances: Instances;
    readonly functions: Fn[] = [];
    /** Per code: frames from outermost to innermost. */
    readonly codes: Frame[][] = [];
    /** Per code: its functions, each once. */
    readonly codeFns: Int32Array[] = [];
    /** Per key of an object: 0 instance, 1 rest of a site, 2 others, 3 unknown. */
    readonly keyKind: Int32Array;
    readonly keySite: Int32Array;
    readonly keyInstance: Int32Array;
    readonly siteById = new Map<number, number>();
    readonly siteRows = new Map<number, DecisionRow>();
    readonly functionRows = new Map<number, FunctionRow>();
    /** Instances with rows of their own, which can therefore be filtered by. */
    readonly hasRows: Uint8Array;
    /** Threads and sites whose rows, or some of them, are among those of others: no filter could tell theirs. */
    readonly foldedThreads: Uint8Array;
    readonly foldedSites: Uint8Array;
    /** Slices of time that views draw: their number and width. */
    readonly bins: number;
    readonly binNs: number;
    readonly isCells: boolean;
    /** Per node: whether no thread can run there (CXL, HBM). Nothing is known of it without the machine. */
    readonly isWithoutCpus: boolean[];
    private readonly ids = new Map<string, number>();
    private readonly locations: Frame[][] = [];
    private readonly stacks: Int32Array[] = [];
    private readonly positions = new Map<number, number>();

    constructor(
        readonly head: Head,
        readonly columns: Columns,
    ) {
        this.isCells = head.grain.kind === "cells";
        head.nodes.forEach((node, position) => this.positions.set(node, position));
        this.isWithoutCpus = head.nodes.map((id) => head.machine?.nodes.find((node) => node.id === id)?.cpus === 0);
        this.readCode();
        this.sites = this.readSites();
        this.instances = this.readInstances();
        this.keyKind = columns.ints("key_kind");
        this.keySite = columns.ints("key_site");
        this.keyInstance = columns.ints("key_instance");
        this.hasRows = new Uint8Array(this.instances.count);
        for (const instance of this.keyInstance) if (instance >= 0) this.hasRows[instance] = 1;
        this.rows = this.readRows();
        this.threadGroup = this.rows.thread.map((thread) => (thread < 0 ? head.threads.length : thread));
        this.oneGroup = new Int32Array(this.rows.count);
        this.allWeight = this.rows.weight.reduce((a, b) => a + b, 0);
        this.remoteWeight = this.rows.weight.reduce((sum, weight, i) => sum + (this.rows.reach[i] === REMOTE ? weight : 0), 0);
        const slices = this.isCells ? Math.ceil(head.duration_ns / head.grain.bin_ns) : 240;
        this.binNs = this.isCells ? head.grain.bin_ns : Math.max(1, Math.ceil(head.duration_ns / slices));
        this.bins = Math.max(1, this.isCells ? slices : Math.ceil(head.duration_ns / this.binNs));
        this.rowBin = Int32Array.from(this.rows.time, (time) => this.bin(time));
        for (const row of head.sites) if (typeof row.key === "object" && "site" in row.key) this.siteRows.set(row.key.site, row);
        for (const row of head.functions) {
            const index = this.ids.get(fnKey(row.function === "(unknown)" ? "" : row.function, row.module, row.file));
            if (index !== undefined) this.functionRows.set(index, row);
        }
        this.foldedThreads = this.readFoldedThreads();
        this.foldedSites = this.readFoldedSites();
    }

    private readFoldedThreads(): Uint8Array {
        // A thread that made no access has no rows either, and that is all there is to show of it.
        const folded = Uint8Array.from(this.head.threads, (row) => (row.samples > 0 ? 1 : 0));
        for (const thread of this.rows.thread) if (thread >= 0) folded[thread] = 0;
        return folded;
    }

    /** A site without rows for the rest of its objects has these among the other objects, unless each has rows of its own. */
    private readFoldedSites(): Uint8Array {
        const { rows, instances, head } = this;
        const folded = new Uint8Array(this.sites.length);
        if (!this.keyKind.includes(OTHER_OBJECTS)) return folded;
        const [own, listed] = [new Float64Array(this.sites.length), new Float64Array(this.sites.length)];
        for (let i = 0; i < rows.count; i++) if (rows.site[i] >= 0) own[rows.site[i]] += rows.samples[i];
        for (let i = 0; i < instances.count; i++) listed[instances.site[i]] += instances.samples[i];
        const areAllListed = head.grain.instances <= head.grain.instances_listed;
        for (const { index, id } of this.sites) {
            const all = this.siteRows.get(id)?.samples ?? (areAllListed ? listed[index] : Infinity);
            folded[index] = own[index] < all ? 1 : 0;
        }
        for (let key = 0; key < this.keyKind.length; key++) if (this.keyKind[key] === REST_OF_SITE) folded[this.keySite[key]] = 0;
        return folded;
    }

    /** Whether a filter by this instance shows something of it: its own rows, or those of the rest of its site. */
    canFilterByInstance(instance: number): boolean {
        if (this.hasRows[instance] === 1) return true;
        const site = this.instances.site[instance];
        return this.keySite.some((of, key) => of === site && this.keyKind[key] === REST_OF_SITE);
    }

    /** A function's name in links: its number, which is that of one page, with what tells it in every page of the recording. */
    functionKey(fn: number): string {
        const { name, module, file } = this.functions[fn];
        return `${fn}-${hash(fnKey(name, module, file))}`;
    }

    /** The function that a link names; -1 where this page has none such. */
    functionOf(key: string): number {
        const [, number, wanted] = /^(\d+)-([0-9a-f]+)$/.exec(key) ?? [];
        if (wanted === undefined) return -1;
        const isIt = (fn: Fn | undefined): boolean => fn !== undefined && hash(fnKey(fn.name, fn.module, fn.file)) === wanted;
        if (isIt(this.functions[Number(number)])) return Number(number);
        const found = this.functions.filter(isIt);
        return found.length === 1 ? found[0].index : -1;
    }

    private readCode(): void {
        const { head, columns } = this;
        const [start, module] = [columns.ints("location_start"), columns.ints("location_module")];
        const [fn, file, line, inlined] = ["frame_function", "frame_file", "frame_line", "frame_inlined"].map((name) => columns.ints(name));
        for (let location = 0; location < module.length; location++) {
            const frames: Frame[] = [];
            for (let i = start[location]; i < start[location + 1]; i++) {
                const path = head.strings[file[i]];
                const index = this.fn(head.strings[fn[i]], head.strings[module[location]], path);
                frames.push({ fn: index, line: line[i], inlined: inlined[i] === 1, file: path });
            }
            this.locations.push(frames);
        }
        const [from, all] = [columns.ints("stack_start"), columns.ints("stack_location")];
        for (let stack = 0; stack + 1 < from.length; stack++) this.stacks.push(all.subarray(from[stack], from[stack + 1]));
        const [location, stack] = [columns.ints("code_location"), columns.ints("code_stack")];
        for (let code = 0; code < location.length; code++) this.codes.push(this.codeFrames(location[code], stack[code]));
        for (const frames of this.codes) this.codeFns.push(Int32Array.from(new Set(frames.map((frame) => frame.fn))));
    }

    private fn(name: string, module: string, file: string): number {
        const key = fnKey(name, module, file);
        let index = this.ids.get(key);
        if (index === undefined) {
            index = this.functions.length;
            this.ids.set(key, index);
            this.functions.push({ index, name: name || "(unknown)", module, file });
        }
        return index;
    }

    private codeFrames(location: number, stack: number): Frame[] {
        const chain = stack < 0 ? [] : [...this.stacks[stack]];
        if (location >= 0 && chain[0] !== location) chain.unshift(location);
        return chain.flatMap((place) => this.locations[place]).reverse();
    }

    /** Frames of a call stack, innermost first. */
    stackFrames(stack: number): Frame[] {
        return stack < 0 || stack >= this.stacks.length ? [] : [...this.stacks[stack]].flatMap((place) => this.locations[place]);
    }

    private readSites(): Site[] {
        const { head, columns } = this;
        const [id, name, kind, fn, file, module, line] = ["id", "name", "kind", "function", "file", "module", "line"].map((field) =>
            columns.ints(`site_${field}`),
        );
        return Array.from(id, (siteId, index) => {
            this.siteById.set(siteId, index);
            const path = head.strings[file[index]];
            const place = path === "" ? fileName(head.strings[module[index]]) : fileName(path) + (line[index] > 0 ? `:${line[index]}` : "");
            return {
                index,
                id: siteId,
                name: head.strings[name[index]].trim() || "(no name)",
                kind: head.strings[kind[index]],
                function: head.strings[fn[index]],
                file: path,
                line: line[index],
                module: head.strings[module[index]],
                place,
            };
        });
    }

    private readInstances(): Instances {
        const ints = (name: string): Int32Array => this.columns.ints(`instance_${name}`);
        const numbers = (name: string): Float64Array => this.columns.numbers(`instance_${name}`);
        const [high, low] = [ints("address_high"), numbers("address_low")];
        const id = ints("id");
        return {
            count: id.length,
            id,
            site: ints("site"),
            stack: ints("stack"),
            thread: ints("thread"),
            node: ints("node"),
            samples: ints("samples"),
            bytes: numbers("bytes"),
            birth: numbers("birth"),
            death: numbers("death"),
            weight: numbers("weight"),
            variance: numbers("variance"),
            known: numbers("known"),
            remote: numbers("remote"),
            writes: numbers("writes"),
            address: (index) => hex(high[index] >>> 0, low[index]),
        };
    }

    private readRows(): Rows {
        const { head, columns } = this;
        const ints = (name: string): Int32Array => columns.ints(`row_${name}`);
        const thread = ints("thread");
        const count = thread.length;
        const time = new Float64Array(count);
        if (this.isCells) {
            const bin = ints("bin");
            for (let i = 0; i < count; i++) time[i] = head.start_ns + bin[i] * head.grain.bin_ns;
        } else {
            const step = columns.numbers("row_step");
            for (let i = 0, at = head.start_ns; i < count; i++) time[i] = at += step[i];
        }
        const [key, code, from, home] = [ints("object"), ints("code"), ints("from"), ints("home")];
        const [site, instance, leaf] = [new Int32Array(count), new Int32Array(count), new Int32Array(count)];
        const reach = new Uint8Array(count);
        const leafOf = this.codes.map((frames) => (frames.length > 0 ? frames[frames.length - 1].fn : -1));
        for (let i = 0; i < count; i++) {
            site[i] = this.keySite[key[i]];
            instance[i] = this.keyInstance[key[i]];
            leaf[i] = leafOf[code[i]];
            reach[i] = from[i] < 0 || home[i] < 0 ? UNKNOWN : from[i] === home[i] ? LOCAL : REMOTE;
        }
        return {
            count,
            time,
            thread,
            key,
            site,
            instance,
            code,
            leaf,
            from,
            home,
            reach,
            flags: ints("flags"),
            samples: ints("samples"),
            weight: columns.numbers("row_weight"),
            variance: columns.numbers("row_variance"),
            page: ints("page"),
            latency: ints("latency"),
        };
    }

    /** Place of a node in per-node lists; -1 where there is none such. */
    position(node: number | null): number {
        return node === null ? -1 : (this.positions.get(node) ?? -1);
    }

    /** `node 2`, by position. */
    nodeName(position: number): string {
        return position < 0 ? "unknown node" : `node ${this.head.nodes[position]}`;
    }

    threadName(thread: number): string {
        const row = this.head.threads[thread];
        if (!row) return thread < 0 ? "other threads" : `thread ${thread}`;
        const name = row.name || row.start_function;
        return name === "" ? `thread ${thread}` : name;
    }

    /** `local_search.cpp:119`, or the function's binary. */
    framePlace(frame: Frame): string {
        if (frame.file !== "") return fileName(frame.file) + (frame.line > 0 ? `:${frame.line}` : "");
        return fileName(this.functions[frame.fn].module);
    }

    end(): number {
        return this.head.start_ns + this.head.duration_ns;
    }

    bin(time: number): number {
        return Math.min(Math.max(Math.floor((time - this.head.start_ns) / this.binNs), 0), this.bins - 1);
    }
}

function fnKey(name: string, module: string, file: string): string {
    return `${name}\0${module}\0${file}`;
}

/** FNV-1a, 32 bits. */
function hash(text: string): string {
    let value = 0x811c9dc5;
    for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
    return (value >>> 0).toString(16);
}
