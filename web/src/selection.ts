// The crossfilter: which rows pass which conditions, and sums over those that pass.
//
// Each row gets one bit per condition that it fails. A view that lets readers choose by some condition leaves that one out, so that it goes on
// showing what else there is to choose.

import { shareOf, total, type Tally } from "./estimate";
import { timeNs } from "./format";
import { LOCAL, REMOTE, UNKNOWN, WRITE, type Model } from "./model";
import type { Estimate, Head } from "./payload";
import type { Filter } from "./store";

export const TIME = 1,
    FROM = 2,
    HOME = 4,
    THREAD = 8,
    OBJECT = 16,
    CODE = 32,
    ONLY = 64;

/** Sums by group: what `Tally` holds, in columns. */
export class Sums {
    readonly samples: Float64Array;
    readonly weight: Float64Array;
    readonly variance: Float64Array;

    constructor(size: number) {
        this.samples = new Float64Array(size);
        this.weight = new Float64Array(size);
        this.variance = new Float64Array(size);
    }

    add(group: number, samples: number, weight: number, variance: number): void {
        this.samples[group] += samples;
        this.weight[group] += weight;
        this.variance[group] += variance;
    }

    tally(group: number): Tally {
        return { samples: this.samples[group], weight: this.weight[group], variance: this.variance[group] };
    }

    all(): Tally {
        const sum = (column: Float64Array): number => column.reduce((a, b) => a + b, 0);
        return { samples: sum(this.samples), weight: sum(this.weight), variance: sum(this.variance) };
    }
}

/** Sums that shares are made of. */
export interface Parts {
    all: Sums;
    known: Sums;
    remote: Sums;
    writes: Sums;
}

/**
 * Whether a slice of time that begins at `start` overlaps the chosen range. What happened within a slice is not known: it counts as a whole, or not at all.
 */
export function overlaps(range: Filter["time"], start: number, width: number): boolean {
    return !range || (start < range[1] && start + width > range[0]);
}

/** The range that the slices of `width` cover which overlap the chosen one, in words; "" where it is just the chosen one. */
export function wholeSlices(head: Head, range: Filter["time"], width: number): string {
    if (!range) return "";
    const end = head.start_ns + head.duration_ns;
    const first = head.start_ns + Math.max(Math.floor((range[0] - head.start_ns) / width), 0) * width;
    const last = Math.min(head.start_ns + Math.ceil((range[1] - head.start_ns) / width) * width, end);
    if (first === range[0] && last === Math.min(range[1], end)) return "";
    return `in slices of ${timeNs(width)}: those that overlap the chosen range count as a whole, from ${timeNs(first)} to ${timeNs(last)}`;
}

export class Selection {
    /** Per row, the conditions that it fails. */
    readonly fails: Uint8Array;
    private readonly cache = new Map<string, Parts>();
    private readonly matrices = new Map<number, Sums>();

    constructor(
        readonly model: Model,
        readonly filter: Filter,
    ) {
        this.fails = new Uint8Array(model.rows.count);
        this.mark();
    }

    private mark(): void {
        const { rows } = this.model;
        const { filter, fails } = this;
        const unlike = (column: ArrayLike<number>, wanted: number, bit: number): void => {
            for (let i = 0; i < rows.count; i++) if (column[i] !== wanted) fails[i] |= bit;
        };
        if (filter.time) {
            // A cell's time is the start of its slice; a sample is at one moment.
            const width = this.model.isCells ? this.model.binNs : 1;
            for (let i = 0; i < rows.count; i++) if (!overlaps(filter.time, rows.time[i], width)) fails[i] |= TIME;
        }
        if (filter.from >= 0) unlike(rows.from, filter.from, FROM);
        if (filter.home >= 0) unlike(rows.home, filter.home, HOME);
        if (filter.thread >= 0) unlike(rows.thread, filter.thread, THREAD);
        // An instance without rows of its own cannot be told apart: those of its site without stand in, and the page says so.
        const instance = filter.instance;
        if (instance >= 0 && this.model.hasRows[instance]) unlike(rows.instance, instance, OBJECT);
        else if (instance >= 0) {
            const site = this.model.instances.site[instance];
            for (let i = 0; i < rows.count; i++) if (rows.site[i] !== site || rows.instance[i] >= 0) fails[i] |= OBJECT;
        } else if (filter.site >= 0) unlike(rows.site, filter.site, OBJECT);
        if (filter.fn >= 0) {
            const has = this.model.codeFns.map((fns) => fns.includes(filter.fn));
            for (let i = 0; i < rows.count; i++) if (!has[rows.code[i]]) fails[i] |= CODE;
        }
        if (filter.only === "remote") unlike(rows.reach, REMOTE, ONLY);
        if (filter.only === "local") unlike(rows.reach, LOCAL, ONLY);
        if (filter.only === "reads" || filter.only === "writes") {
            const wanted = filter.only === "writes" ? WRITE : 0;
            for (let i = 0; i < rows.count; i++) if ((rows.flags[i] & WRITE) !== wanted) fails[i] |= ONLY;
        }
    }

    /** Calls back for every row that passes all conditions but those in `but`. */
    each(but: number, visit: (row: number) => void): void {
        const careless = ~but & 0xff;
        const { fails } = this;
        for (let i = 0; i < fails.length; i++) if ((fails[i] & careless) === 0) visit(i);
    }

    /** Sums by a column with values below `size`; rows where it is -1 are left out. Computed once for each name and `but`. */
    by(name: string, column: Int32Array, size: number, but: number): Parts {
        const key = `${name} ${but}`;
        const known = this.cache.get(key);
        if (known) return known;
        const parts: Parts = { all: new Sums(size), known: new Sums(size), remote: new Sums(size), writes: new Sums(size) };
        const { samples, weight, variance, reach, flags } = this.model.rows;
        const { fails } = this;
        const careless = ~but & 0xff;
        // The busiest loop of the page: plain statements, no short-lived arrays.
        for (let i = 0; i < fails.length; i++) {
            if ((fails[i] & careless) !== 0) continue;
            const group = column[i];
            if (group < 0) continue;
            const n = samples[i];
            const w = weight[i];
            const v = variance[i];
            parts.all.add(group, n, w, v);
            if (reach[i] !== UNKNOWN) parts.known.add(group, n, w, v);
            if (reach[i] === REMOTE) parts.remote.add(group, n, w, v);
            if ((flags[i] & WRITE) !== 0) parts.writes.add(group, n, w, v);
        }
        this.cache.set(key, parts);
        return parts;
    }

    /** Everything that passes, in one group. */
    whole(but = 0): Parts {
        return this.by("whole", this.model.oneGroup, 1, but);
    }

    /** Sums by accessing node (rows) and home node (columns): `from * nodes + home`. */
    matrix(but: number): Sums {
        const known = this.matrices.get(but);
        if (known) return known;
        const { rows, head } = this.model;
        const n = head.nodes.length;
        const sums = new Sums(n * n);
        this.each(but, (i) => {
            if (rows.reach[i] !== UNKNOWN) sums.add(rows.from[i] * n + rows.home[i], rows.samples[i], rows.weight[i], rows.variance[i]);
        });
        this.matrices.set(but, sums);
        return sums;
    }
}

/** Remote share, write share and total of a group. */
export function shares(parts: Parts, group: number): { accesses: Estimate; remote: Estimate; writes: Estimate } {
    return {
        accesses: total(parts.all.tally(group)),
        remote: shareOf(parts.remote.tally(group), parts.known.tally(group)),
        writes: shareOf(parts.writes.tally(group), parts.all.tally(group)),
    };
}
