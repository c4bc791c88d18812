// Decision rows (docs/metrics.md): `insight`'s own where nothing is filtered, worked out from the rows otherwise.

import { shareOf, total, type Tally } from "./estimate";
import { BEFORE_OTHERS, BY_ALLOCATOR, HAS_ALLOCATOR, LOCAL, REMOTE, UNKNOWN, WRITE, type Model } from "./model";
import type { DecisionRow, Estimate, Pattern } from "./payload";
import type { Selection } from "./selection";

/** Below this share of accesses with a known home node, what follows from home nodes is unknown (docs/metrics.md, "The decision row"). */
export const KNOWN_LEAST = 0.5;

/** The line without what follows from home nodes, if too few of them are known. */
export function ifKnown(line: ObjectLine, known: number): ObjectLine {
    return known >= KNOWN_LEAST ? line : { ...line, ofRemote: NaN, remote: NaN, pin: NaN, elsewhere: NaN, on: [] };
}

/** One line of the object table. Shares without interval are plain numbers; NaN is unknown. */
export interface ObjectLine {
    site: number;
    instance: number;
    name: string;
    place: string;
    kind: string;
    bytes: number;
    instances: number;
    samples: number;
    accesses: number;
    share: Estimate;
    ofRemote: number;
    remote: number;
    pin: number;
    elsewhere: number;
    own: number;
    first: number;
    writes: number;
    threads: number;
    from: ArrayLike<number>;
    on: ArrayLike<number>;
    pattern: Pattern;
    /** It has no rows of its own, so filters cannot reach it. */
    isFolded: boolean;
}

/** From `insight`'s row. */
export function lineOf(model: Model, row: DecisionRow): ObjectLine {
    const siteId = typeof row.key === "object" && "site" in row.key ? row.key.site : -1;
    const line: ObjectLine = {
        site: model.siteById.get(siteId) ?? -1,
        instance: -1,
        name: row.name,
        place: row.place,
        kind: row.kind,
        bytes: row.peak_live_bytes,
        instances: row.instances,
        samples: row.samples,
        accesses: row.accesses[0],
        share: row.share,
        ofRemote: row.share_of_remote[0],
        remote: row.remote[0],
        pin: row.avoidable_by_pinning?.[0] ?? NaN,
        elsewhere: row.avoidable_by_allocating_elsewhere[0],
        own: row.by_allocator?.[0] ?? NaN,
        first: row.before_others?.[0] ?? NaN,
        writes: row.writes[0],
        threads: row.threads,
        from: row.from_node.map((e) => e[0]),
        on: row.on_node.map((e) => e[0]),
        pattern: row.pattern,
        isFolded: false,
    };
    return ifKnown(line, row.known_homes);
}

/** Sums from which lines are made, by any numbering of objects. */
class Groups {
    readonly samples: Float64Array;
    readonly weight: Float64Array;
    readonly variance: Float64Array;
    readonly known: Float64Array;
    readonly remote: Float64Array;
    readonly writes: Float64Array;
    readonly withOwner: Float64Array;
    readonly byOwner: Float64Array;
    readonly remoteWithOwner: Float64Array;
    readonly remoteByOwner: Float64Array;
    readonly first: Float64Array;
    readonly from: Float64Array;
    readonly fromRemote: Float64Array;
    readonly fromLocal: Float64Array;
    readonly home: Float64Array;
    readonly threads: Uint32Array;

    constructor(
        size: number,
        nodes: number,
        private readonly words: number,
    ) {
        const column = (): Float64Array => new Float64Array(size);
        const perNode = (): Float64Array => new Float64Array(size * nodes);
        [this.samples, this.weight, this.variance, this.known] = [column(), column(), column(), column()];
        [this.remote, this.writes, this.withOwner, this.byOwner] = [column(), column(), column(), column()];
        [this.remoteWithOwner, this.remoteByOwner, this.first] = [column(), column(), column()];
        [this.from, this.fromRemote, this.fromLocal, this.home] = [perNode(), perNode(), perNode(), perNode()];
        this.threads = new Uint32Array(size * words);
    }

    seen(group: number, thread: number): void {
        if (thread >= 0) this.threads[group * this.words + (thread >>> 5)] |= 1 << (thread & 31);
    }

    threadCount(group: number): number {
        let count = 0;
        for (let word = 0; word < this.words; word++) for (let bits = this.threads[group * this.words + word]; bits !== 0; bits &= bits - 1) count++;
        return count;
    }
}

/** Lines of everything that passes the conditions but those in `but`, grouped by `column`. */
export function lines(
    model: Model,
    selection: Selection,
    column: Int32Array,
    size: number,
    but: number,
    describe: (group: number) => Partial<ObjectLine>,
): ObjectLine[] {
    const { rows, head } = model;
    const n = head.nodes.length;
    const groups = new Groups(size, n, Math.ceil(Math.max(head.threads.length, 1) / 32));
    const all: Tally = { samples: 0, weight: 0, variance: 0 };
    let allRemote = 0;
    selection.each(but, (i) => {
        const group = column[i];
        const w = rows.weight[i];
        const reach = rows.reach[i];
        const flags = rows.flags[i];
        all.samples += rows.samples[i];
        all.weight += w;
        all.variance += rows.variance[i];
        if (reach === REMOTE) allRemote += w;
        if (group < 0) return;
        groups.samples[group] += rows.samples[i];
        groups.weight[group] += w;
        groups.variance[group] += rows.variance[i];
        if ((flags & WRITE) !== 0) groups.writes[group] += w;
        groups.seen(group, rows.thread[i]);
        const from = rows.from[i];
        const home = rows.home[i];
        if (from >= 0) groups.from[group * n + from] += w;
        if (home >= 0) groups.home[group * n + home] += w;
        if (reach !== UNKNOWN) groups.known[group] += w;
        if (reach === REMOTE) {
            groups.remote[group] += w;
            groups.fromRemote[group * n + from] += w;
        }
        if (reach === LOCAL) groups.fromLocal[group * n + from] += w;
        if ((flags & HAS_ALLOCATOR) !== 0) owner(groups, group, w, flags, reach);
    });
    const lines: ObjectLine[] = [];
    for (let group = 0; group < size; group++) {
        if (groups.weight[group] > 0) lines.push({ ...line(model, groups, group, n, all, allRemote), ...describe(group) });
    }
    return lines;
}

function owner(groups: Groups, group: number, w: number, flags: number, reach: number): void {
    groups.withOwner[group] += w;
    if (reach === REMOTE) groups.remoteWithOwner[group] += w;
    if ((flags & BY_ALLOCATOR) === 0) return;
    groups.byOwner[group] += w;
    if ((flags & BEFORE_OTHERS) !== 0) groups.first[group] += w;
    if (reach === REMOTE) groups.remoteByOwner[group] += w;
}

function line(model: Model, groups: Groups, group: number, n: number, all: Tally, allRemote: number): ObjectLine {
    const ratio = (part: number, whole: number): number => (whole > 0 ? part / whole : 0);
    const weight = groups.weight[group];
    const tally = { samples: groups.samples[group], weight, variance: groups.variance[group] };
    const nodes = (sums: Float64Array): Float64Array => {
        const own = sums.slice(group * n, group * n + n);
        const sum = own.reduce((a, b) => a + b, 0);
        return own.map((value) => ratio(value, sum));
    };
    const best = bestNode(model, groups.from.subarray(group * n, group * n + n));
    const lost = groups.known[group] - groups.remote[group] - (best < 0 ? 0 : groups.fromLocal[group * n + best]);
    const won = best < 0 ? 0 : groups.fromRemote[group * n + best];
    const withOwner = groups.withOwner[group];
    const made: ObjectLine = {
        site: -1,
        instance: -1,
        name: "",
        place: "",
        kind: "",
        bytes: 0,
        instances: 0,
        samples: tally.samples,
        accesses: total(tally)[0],
        share: shareOf(tally, all),
        ofRemote: ratio(groups.remote[group], allRemote),
        remote: ratio(groups.remote[group], groups.known[group]),
        pin: withOwner > 0 ? ratio(groups.remoteByOwner[group], groups.remoteWithOwner[group]) : NaN,
        elsewhere: Math.min(Math.max(ratio(won - lost, groups.remote[group]), 0), 1),
        own: withOwner > 0 ? groups.byOwner[group] / withOwner : NaN,
        first: withOwner > 0 ? groups.first[group] / withOwner : NaN,
        writes: ratio(groups.writes[group], weight),
        threads: groups.threadCount(group),
        from: nodes(groups.from),
        on: nodes(groups.home),
        pattern: "too-few-samples",
        isFolded: false,
    };
    const known = ratio(groups.known[group], weight);
    made.pattern = classify(made, known);
    return ifKnown(made, known);
}

function bestNode(model: Model, from: Float64Array): number {
    let best = -1;
    for (let node = 0; node < from.length; node++)
        if (model.head.has_memory[node] && from[node] > 0 && (best < 0 || from[node] > from[best])) best = node;
    return best;
}

/** The thresholds of docs/metrics.md, "Patterns". */
function classify(line: ObjectLine, known: number): Pattern {
    if (line.samples < 30) return "too-few-samples";
    if (known < KNOWN_LEAST) return "homes-unknown";
    if (1 - line.remote >= 0.9) return "local";
    if (line.own >= 0.9) return "private-remote";
    if (Math.max(...Array.from(line.from)) >= 0.9) return "used-elsewhere";
    return line.writes <= 0.05 ? "shared-read" : "shared-written";
}
