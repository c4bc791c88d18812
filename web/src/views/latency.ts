// How long accesses took, where that was measured.

import { heights, tickLabels } from "../axis";
import { defined } from "../definitions";
import { append, behind, h, refresh, replace, svg } from "../dom";
import { count, percent } from "../format";
import { LOCAL, REMOTE } from "../model";
import * as palette from "../palette";
import { overlaps, wholeSlices, type Selection } from "../selection";
import type { Context, View } from "../view";
import { keys, REACHES } from "./timeline";

/** Buckets per doubling, as in the page's data. */
const PER_OCTAVE = 4;
const BUCKETS = 128;
const [WIDTH, HEIGHT] = [560, 170];
/** Where bars begin, beside the labels of the axis; where the highest ends, and where all stand. */
const [LEFT, TOP, BOTTOM] = [48, 10, HEIGHT - 20];

interface Spread {
    local: Float64Array;
    remote: Float64Array;
    other: Float64Array;
}

export function latency(context: Context): View {
    const { model } = context;
    const { head } = model;
    const isMeasured = model.rows.latency.length > 0 || model.columns.ints("latency_bucket").length > 0;
    const body = h("div");
    const element = h(
        "section",
        { class: "card latency", "aria-label": "Latency" },
        h("div", { class: "card-head" }, h("h2", {}, defined("Latency", "mean_latency_cycles"))),
        body,
    );
    if (!isMeasured) {
        const why = head.recording.engine === "instrument" ? "The engine instrument observes accesses, not how long they take: " : "";
        replace(body, h("p", { class: "nothing" }, `${why}${why ? "no" : "No"} latency was measured in this recording, so none is shown.`));
        return { element, render: () => undefined };
    }
    let rows: (string | number)[][] = [];
    const table = behind("Accesses by latency", ["From cycles", "Local", "Remote", "Unknown home"], () => rows);
    const stage = h("div");
    const words = h("p", { class: "faint" });
    const legend = h("div", { class: "keys" });
    replace(body, legend, stage, words, table);
    return {
        element,
        render: (selection) => {
            const spread = model.isCells ? fromCells(context, selection) : fromRows(context, selection);
            replace(stage, draw(spread));
            const unit = h("span", { class: "unit" }, "height: accesses in a quarter of a doubling");
            replace(legend, ...keys(REACHES(spread.other.some((weight) => weight > 0))), unit);
            rows = list(spread);
            refresh(table);
            words.textContent = describe(context, spread);
        },
    };
}

const empty = (): Spread => ({ local: new Float64Array(BUCKETS), remote: new Float64Array(BUCKETS), other: new Float64Array(BUCKETS) });
const start = (bucket: number): number => 2 ** (bucket / PER_OCTAVE);

function fromRows({ model }: Context, selection: Selection): Spread {
    const { rows } = model;
    const spread = empty();
    selection.each(0, (i) => {
        if (rows.latency[i] < 0) return;
        const bucket = Math.min(Math.floor(Math.log2(Math.max(rows.latency[i], 1)) * PER_OCTAVE), BUCKETS - 1);
        const side = rows.reach[i] === LOCAL ? spread.local : rows.reach[i] === REMOTE ? spread.remote : spread.other;
        side[bucket] += rows.weight[i];
    });
    return spread;
}

function fromCells({ model }: Context, selection: Selection): Spread {
    const [bin, from, home, bucket] = ["bin", "from", "home", "bucket"].map((name) => model.columns.ints(`latency_${name}`));
    const weight = model.columns.numbers("latency_weight");
    const { filter } = selection;
    const spread = empty();
    for (let i = 0; i < bucket.length; i++) {
        const time = model.head.start_ns + bin[i] * model.head.grain.bin_ns;
        if ((filter.from >= 0 && filter.from !== from[i]) || (filter.home >= 0 && filter.home !== home[i])) continue;
        if (!overlaps(filter.time, time, model.head.grain.latency_bin_ns)) continue;
        const side = from[i] < 0 || home[i] < 0 ? spread.other : from[i] === home[i] ? spread.local : spread.remote;
        side[Math.min(bucket[i], BUCKETS - 1)] += weight[i];
    }
    return spread;
}

function used({ local, remote, other }: Spread): [first: number, last: number] {
    const at = Array.from({ length: BUCKETS }, (_, bucket) => bucket).filter((bucket) => local[bucket] + remote[bucket] + other[bucket] > 0);
    return at.length > 0 ? [at[0], at[at.length - 1]] : [0, -1];
}

function draw(spread: Spread): SVGSVGElement {
    const [first, last] = used(spread);
    const picture = svg("svg", {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        class: "latency-picture",
        role: "img",
        "aria-label": "Accesses by latency in cycles, local and remote",
    });
    if (last < first) return picture;
    const step = (WIDTH - LEFT) / (last - first + 1);
    const most = Math.max(
        ...Array.from({ length: last - first + 1 }, (_, i) => spread.local[first + i] + spread.remote[first + i] + spread.other[first + i]),
    );
    const ticks = heights(most, 4, TOP, BOTTOM);
    append(picture, [
        ...ticks.map(({ y }) => svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y, class: "grid" })),
        ...tickLabels(ticks, LEFT - 6),
    ]);
    for (let bucket = first; bucket <= last; bucket++) {
        const x = LEFT + (bucket - first) * step;
        let y = BOTTOM;
        for (const [values, colour] of [
            [spread.local, palette.local()],
            [spread.remote, palette.remote()],
            [spread.other, palette.unknown()],
        ] as const) {
            const tall = (values[bucket] / most) * (BOTTOM - TOP);
            if (tall > 0) picture.append(svg("rect", { x, y: y - tall, width: Math.max(step - 1, 1), height: tall, fill: colour }));
            y -= tall;
        }
        const every = Math.max(1, Math.ceil((last - first + 1) / 9));
        if ((bucket - first) % every === 0) picture.append(svg("text", { x, y: HEIGHT - 5, class: "axis" }, count(Math.round(start(bucket)))));
    }
    return picture;
}

function list(spread: Spread): (string | number)[][] {
    const [first, last] = used(spread);
    return Array.from({ length: Math.max(last - first + 1, 0) }, (_, i) => first + i).map((bucket) => [
        count(Math.round(start(bucket))),
        ...[spread.local, spread.remote, spread.other].map((values) => count(Math.round(values[bucket]))),
    ]);
}

function describe({ model, store }: Context, spread: Spread): string {
    const middle = (values: Float64Array): string => {
        const all = values.reduce((a, b) => a + b, 0);
        if (all <= 0) return "none";
        let sum = 0;
        for (let bucket = 0; bucket < BUCKETS; bucket++) {
            sum += values[bucket];
            if (sum >= all / 2) return `${count(Math.round(start(bucket)))} to ${count(Math.round(start(bucket + 1)))} cycles`;
        }
        return "none";
    };
    const known = [spread.local, spread.remote, spread.other].reduce((sum, values) => sum + values.reduce((a, b) => a + b, 0), 0);
    const whole = model.allWeight;
    const limit =
        model.isCells &&
        (store.filter.thread >= 0 || store.filter.site >= 0 || store.filter.instance >= 0 || store.filter.fn >= 0 || store.filter.only !== "")
            ? " Filters by thread, object, function and direction do not apply to latencies on this page."
            : "";
    const slices = model.isCells ? wholeSlices(model.head, store.filter.time, model.head.grain.latency_bin_ns) : "";
    // Which there are none of has no median, and no picture.
    const medians = [
        ["local", spread.local],
        ["remote", spread.remote],
        ["those with unknown home", spread.other],
    ] as const;
    const seen = medians.filter(([, values]) => values.some((weight) => weight > 0)).map(([name, values]) => `${name} ${middle(values)}`);
    return (
        (seen.length > 0
            ? `Cycles, on a scale of doublings. Medians: ${seen.join("; ")}.`
            : `No ${store.isFiltered() ? "access that passes the filters" : "access"} has a latency.`) +
        (store.isFiltered() ? "" : ` ${percent(whole > 0 ? known / whole : 0)} of all accesses have a latency.`) +
        (slices ? ` This page holds latencies ${slices}.` : "") +
        limit
    );
}
