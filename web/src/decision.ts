// Decision rows (docs/metrics.md): `insight`'s own where nothing is filtered, worked out from the rows otherwise.

import { shareOf, total, type Tally } from "./estimate";
import { BEFORE_OTHERS, BY_ALLOCATOR, HAS_ALLOCATOR, LOCAL, REMOTE, UNKNOWN, WRITE, type Model } from "./model";
import type { DecisionRow, Estimate, Pattern } from "./payload";
import type { Selection } from "./selection";

/** Below this share of accesses with a known home node, what follows from home nodes is unknown (docs/metrics.md, "The decision row"). */
export const KNOWN_LEAST = 0.5;

/** Bars by node that are not known. */
export const NOWHERE = (): number[] => [];

/** The line without what follows from home nodes, if too few of them are known. */
export function ifKnown(line: ObjectLine, known: number): ObjectLine {
    return known >= KNOWN_LEAST ? line : { ...line, ofRemote: NaN, remote: NaN, pin: NaN, elsewhere: NaN, on: NOWHERE };
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
    /** There may be more than `threads`: some are folded into others. */
    hasMoreThreads: boolean;
    /** Shares by node. */
    from: () => ArrayLike<number>;
    on: () => ArrayLike<number>;
    /** null: not worked out. */
    pattern: Pattern | null;
    /** It has no rows of its own, or not for all of it, so filters cannot reach it. */
    isFolded: boolean;
    /** The sums are of a part of it: of the objects that are listed, or that have rows. */
    isPart: boolean;
}

/** From `insight`'s row. */
export function lineOf(model: Model, row: DecisionRow): ObjectLine {
    const siteId = typeof row.key === "object" && "site" in row.key ? row.key.site : -1;
    const site = model.siteById.get(siteId) ?? -1;
    const line: ObjectLine = {
        site,
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
        hasMoreThreads: false,
        from: () => row.from_node.map((e) => e[0]),
        on: () => row.on_node.map((e) => e[0]),
        pattern: row.pattern,
        isFolded: site >= 0 && model.foldedSites[site] === 1,
        isPart: false,
    };
    return ifKnown(line, row.known_homes);
}

/** Sums of one line. */
class Group {
    samples = 0;
    weight = 0;
    variance = 0;
    known = 0;
    remote = 0;
    writes = 0;
    withOwner = 0;
    byOwner = 0;
    remoteWithOwner = 0;
    remoteByOwner = 0;
    first = 0;
    threads = 0;
    hasOtherThreads = false;

    /** By accessing node: all of it, remote and local. The lists are lent, one line after the other. */
    constructor(
        readonly from: Float64Array,
        readonly fromRemote: Float64Array,
        readonly fromLocal: Float64Array,
    ) {
        for (const list of [from, fromRemote, fromLocal]) list.fill(0);
    }

    add({ rows, isWithoutCpus }: Model, i: number): void {
        const [w, reach, from] = [rows.weight[i], rows.reach[i], rows.from[i]];
        this.samples += rows.samples[i];
        this.weight += w;
        this.variance += rows.variance[i];
        if ((rows.flags[i] & WRITE) !== 0) this.writes += w;
        if (from >= 0) this.from[from] += w;
        if (reach !== UNKNOWN) this.known += w;
        if (reach === REMOTE) {
            this.remote += w;
            this.fromRemote[from] += w;
        }
        if (reach === LOCAL) this.fromLocal[from] += w;
        // No thread can be pinned to a node without CPUs.
        const canPin = reach === REMOTE && !isWithoutCpus[rows.home[i]];
        if ((rows.flags[i] & HAS_ALLOCATOR) !== 0) this.owner(w, rows.flags[i], reach, canPin);
    }

    private owner(w: number, flags: number, reach: number, canPin: boolean): void {
        this.withOwner += w;
        if (reach === REMOTE) this.remoteWithOwner += w;
        if ((flags & BY_ALLOCATOR) === 0) return;
        this.byOwner += w;
        if ((flags & BEFORE_OTHERS) !== 0) this.first += w;
        if (canPin) this.remoteByOwner += w;
    }
}

/** Rows that pass, in one chain for each line: tables by line and node, or line and thread, would take hundreds of megabytes in large pages. */
interface Chains {
    first: Int32Array;
    next: Int32Array;
}

function follow({ first, next }: Chains, group: number, visit: (row: number) => void): void {
    for (let i = first[group]; i >= 0; i = next[i]) visit(i);
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
    const chains: Chains = { first: new Int32Array(size).fill(-1), next: new Int32Array(rows.count) };
    const all: Tally = { samples: 0, weight: 0, variance: 0 };
    let allRemote = 0;
    selection.each(but, (i) => {
        const group = column[i];
        all.samples += rows.samples[i];
        all.weight += rows.weight[i];
        all.variance += rows.variance[i];
        if (rows.reach[i] === REMOTE) allRemote += rows.weight[i];
        if (group < 0) return;
        chains.next[i] = chains.first[group];
        chains.first[group] = i;
    });
    // Per thread, the last line that it was seen in.
    const seen = new Int32Array(head.threads.length).fill(-1);
    const [a, b, c] = Array.from({ length: 3 }, () => new Float64Array(head.nodes.length));
    const lines: ObjectLine[] = [];
    for (let group = 0; group < size; group++) {
        if (chains.first[group] < 0) continue;
        const sums = new Group(a, b, c);
        follow(chains, group, (i) => {
            sums.add(model, i);
            const thread = rows.thread[i];
            if (thread < 0) sums.hasOtherThreads = true;
            else if (seen[thread] !== group) {
                seen[thread] = group;
                sums.threads++;
            }
        });
        const nodes = (of: Int32Array) => (): Float64Array => {
            const own = new Float64Array(head.nodes.length);
            follow(chains, group, (i) => {
                if (of[i] >= 0) own[of[i]] += rows.weight[i];
            });
            const sum = own.reduce((a, b) => a + b, 0);
            return own.map((value) => ratio(value, sum));
        };
        if (sums.weight > 0) lines.push({ ...line(model, sums, all, allRemote), from: nodes(rows.from), on: nodes(rows.home), ...describe(group) });
    }
    return lines;
}

const ratio = (part: number, whole: number): number => (whole > 0 ? part / whole : 0);

/** All but the bars by node, which are worked out where they are drawn. */
function line(model: Model, sums: Group, all: Tally, allRemote: number): ObjectLine {
    const { weight, withOwner } = sums;
    // What the objects with a known allocating thread show says nothing of the others, where these are more: as `insight` has it.
    const hasOwner = withOwner > 0 && withOwner >= KNOWN_LEAST * weight;
    const best = bestNode(model, sums.from);
    const lost = sums.known - sums.remote - (best < 0 ? 0 : sums.fromLocal[best]);
    const won = best < 0 ? 0 : sums.fromRemote[best];
    const made: ObjectLine = {
        site: -1,
        instance: -1,
        name: "",
        place: "",
        kind: "",
        bytes: 0,
        instances: 0,
        samples: sums.samples,
        accesses: total(sums)[0],
        share: shareOf(sums, all),
        ofRemote: ratio(sums.remote, allRemote),
        remote: ratio(sums.remote, sums.known),
        pin: hasOwner ? ratio(sums.remoteByOwner, sums.remoteWithOwner) : NaN,
        elsewhere: Math.min(Math.max(ratio(won - lost, sums.remote), 0), 1),
        own: hasOwner ? sums.byOwner / withOwner : NaN,
        first: hasOwner ? sums.first / withOwner : NaN,
        writes: ratio(sums.writes, weight),
        // Others are at least one more.
        threads: sums.threads + (sums.hasOtherThreads ? 1 : 0),
        hasMoreThreads: sums.hasOtherThreads,
        from: NOWHERE,
        on: NOWHERE,
        pattern: null,
        isFolded: false,
        isPart: false,
    };
    const known = ratio(sums.known, weight);
    made.pattern = ofPlace(made.samples, known, made.remote) ?? classify(made, sums.from);
    return ifKnown(made, known);
}

function bestNode(model: Model, from: Float64Array): number {
    let best = -1;
    for (let node = 0; node < from.length; node++)
        if (model.head.has_memory[node] && from[node] > 0 && (best < 0 || from[node] > from[best])) best = node;
    return best;
}

/** The patterns of docs/metrics.md that follow from where accesses go alone; null for the others. */
export function ofPlace(samples: number, known: number, remote: number): Pattern | null {
    if (samples < 30) return "too-few-samples";
    if (known < KNOWN_LEAST) return "homes-unknown";
    return 1 - remote >= 0.9 ? "local" : null;
}

/** The others, by the thresholds of docs/metrics.md, "Patterns". */
function classify(line: ObjectLine, from: Float64Array): Pattern {
    if (line.own >= 0.9) return "private-remote";
    if (ratio(Math.max(...from), from.reduce((a, b) => a + b, 0)) >= 0.9) return "used-elsewhere";
    return line.writes <= 0.05 ? "shared-read" : "shared-written";
}
