// The headline metrics over program time, each with its 95 % band.

import { defined } from "../definitions";
import { behind, h, refresh, replace, svg } from "../dom";
import { imbalance, shareOf, total } from "../estimate";
import { count, percent, timeNs } from "../format";
import type { Model } from "../model";
import type { Estimate } from "../payload";
import { Sums, TIME, type Selection } from "../selection";
import type { Context, View } from "../view";
import { said, sentence } from "../words";

/** Slices drawn: fewer than the time line's, so that each holds samples enough for a share. */
const SLICES = 60;
const [WIDTH, HEIGHT] = [320, 84];

interface Series {
    name: string;
    term: string;
    values: Estimate[];
    greatest: number;
    words: (value: number) => string;
}

export function metrics(context: Context): View {
    const { model } = context;
    const box = h("div", { class: "charts" });
    let series: Series[] = [];
    const table = behind("Metrics over program time", ["From", `${sentence(said.many)} per second`, "Remote", "Writes", "Imbalance"], () => {
        const slices = series[0]?.values.length ?? 0;
        return Array.from({ length: slices }, (_, slice) => [
            timeNs(Math.round(model.head.start_ns + sliceNs(model) * slice)),
            ...series.map((one) => one.words(one.values[slice][0])),
        ]);
    });
    const element = h(
        "section",
        { class: "card metrics", id: "metrics-section", tabindex: -1, "aria-label": "Metrics over time" },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Metrics over time", "Series")),
            h("span", { class: "faint hint" }, "Bands are 95 % intervals; slices of which a share is unknown are left out"),
        ),
        box,
        table,
    );
    return {
        element,
        render: (selection) => {
            series = compute(context, selection);
            replace(box, ...series.map((one) => chart(context, one)));
            refresh(table);
        },
    };
}

/** Width of a slice, ns. It is made of whole slices of the page's cells: some of one more than others would draw waves that are none. */
function sliceNs(model: Model): number {
    return Math.max(1, Math.ceil(model.bins / SLICES)) * model.binNs;
}

let column: Int32Array | undefined;

/** Per row, its slice; worked out once. */
function sliceOf({ rows, head }: Model, slices: number, each: number): Int32Array {
    column ??= Int32Array.from(rows.time, (time) => Math.min(Math.max(Math.floor((time - head.start_ns) / each), 0), slices - 1));
    return column;
}

function compute({ model }: Context, selection: Selection): Series[] {
    const { head, rows } = model;
    const each = sliceNs(model);
    const slices = Math.max(1, Math.ceil(head.duration_ns / each));
    const column = sliceOf(model, slices, each);
    const parts = selection.by(`slice ${slices}`, column, slices, TIME);
    const n = head.nodes.length;
    const served = new Sums(slices * n);
    selection.each(TIME, (i) => {
        if (rows.home[i] >= 0) served.add(column[i] * n + rows.home[i], rows.samples[i], rows.weight[i], rows.variance[i]);
    });
    // The last slice may be shorter.
    const lasted = (slice: number): number => Math.max(Math.min(each, head.duration_ns - slice * each), 1);
    const perSecond = (slice: number, estimate: Estimate): Estimate => estimate.map((value) => value / (lasted(slice) / 1e9)) as unknown as Estimate;
    const all = Array.from({ length: slices }, (_, slice) => slice);
    const spread = all.map(
        (slice) =>
            imbalance(head.nodes.map((_, node) => total(served.tally(slice * n + node))).filter((_, node) => head.has_memory[node])).population,
    );
    const rate = all.map((slice) => perSecond(slice, total(parts.all.tally(slice))));
    const none: Estimate = [NaN, NaN, NaN];
    // A share of nothing, or of accesses none of whose homes is known, is no 0.
    const seen = (slice: number, of: Sums, estimate: Estimate): Estimate => (of.samples[slice] > 0 ? estimate : none);
    const isServed = (slice: number): boolean => head.nodes.some((_, node) => head.has_memory[node] && served.weight[slice * n + node] > 0);
    return [
        {
            name: `${sentence(said.many)} per second`,
            term: "Series",
            values: rate,
            greatest: Math.max(...rate.map((value) => value[2]), 1),
            words: (value) => `${count(Math.round(value))}/s`,
        },
        {
            name: "Remote share",
            term: "Remote",
            values: all.map((slice) => seen(slice, parts.known, shareOf(parts.remote.tally(slice), parts.known.tally(slice)))),
            greatest: 1,
            words: percent,
        },
        {
            name: "Write share",
            term: "writes",
            values: all.map((slice) => seen(slice, parts.all, shareOf(parts.writes.tally(slice), parts.all.tally(slice)))),
            greatest: 1,
            words: percent,
        },
        {
            name: "Controller imbalance",
            term: "Controller imbalance",
            values: spread.map((value, slice) => (isServed(slice) ? value : none)),
            greatest: Math.sqrt(Math.max(head.has_memory.filter(Boolean).length - 1, 1)),
            words: percent,
        },
    ];
}

function chart({ model, store }: Context, series: Series): HTMLElement {
    const { values, greatest } = series;
    const x = (slice: number): number => Math.min(((slice + 0.5) * sliceNs(model)) / Math.max(model.head.duration_ns, 1), 1) * WIDTH;
    const y = (value: number): number => HEIGHT - Math.min(Math.max(value / greatest, 0), 1) * (HEIGHT - 6);
    const band: string[] = [];
    const line: string[] = [];
    let run: number[] = [];
    const flush = (): void => {
        if (run.length === 0) return;
        const up = run.map((slice) => `${x(slice).toFixed(1)},${y(values[slice][2]).toFixed(1)}`);
        const down = [...run].reverse().map((slice) => `${x(slice).toFixed(1)},${y(values[slice][1]).toFixed(1)}`);
        band.push(`M${[...up, ...down].join("L")}Z`);
        line.push(`M${run.map((slice) => `${x(slice).toFixed(1)},${y(values[slice][0]).toFixed(1)}`).join("L")}${run.length === 1 ? "h1" : ""}`);
        run = [];
    };
    values.forEach((value, slice) => (Number.isNaN(value[0]) ? flush() : run.push(slice)));
    flush();
    const { time } = store.filter;
    const at = (ns: number): number => ((ns - model.head.start_ns) / model.head.duration_ns) * WIDTH;
    const chosen = time
        ? svg("rect", { x: at(time[0]), y: 0, width: Math.max(at(time[1]) - at(time[0]), 1), height: HEIGHT, class: "chosen-time" })
        : null;
    const finite = values.map((value) => value[0]).filter((value) => !Number.isNaN(value));
    const range = finite.length > 0 ? `between ${series.words(Math.min(...finite))} and ${series.words(Math.max(...finite))}` : "nothing seen";
    return h(
        "figure",
        { class: "chart" },
        h("figcaption", {}, defined(series.name, series.term), h("span", { class: "faint" }, range)),
        h("div", { class: "scale", "aria-hidden": "true" }, series.words(greatest)),
        svg(
            "svg",
            { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${series.name} over time, ${range}` },
            chosen,
            svg("path", { d: band.join(""), class: "band" }),
            svg("path", { d: line.join(""), class: "line" }),
            svg("line", { x1: 0, x2: WIDTH, y1: 6, y2: 6, class: "top" }),
            svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "base" }),
        ),
        h("div", { class: "scale", "aria-hidden": "true" }, "0"),
    );
}
