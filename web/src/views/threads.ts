// Threads: a table with a strip of each one's time, and one thread's event flow.

import { defined } from "../definitions";
import { h, prepare, replace } from "../dom";
import { shareOf, total } from "../estimate";
import { count, elide, percent, share, timeNs } from "../format";
import { OTHER_OBJECTS, REMOTE, UNKNOWN, WRITE, type Model } from "../model";
import * as palette from "../palette";
import type { Estimate, ThreadRow } from "../payload";
import { THREAD, type Selection } from "../selection";
import { Table, type Column } from "../table";
import type { Context, View } from "../view";
import { said } from "../words";
import { estimateCell, nodesColumn, remoteColumn } from "./columns";

/** Events of the flow that are listed. */
const EVENTS = 100;

interface Line {
    thread: number;
    row: ThreadRow | undefined;
    share: Estimate;
    remote: Estimate;
    writes: Estimate;
    accesses: number;
    samples: number;
    /** Shares by node. */
    on: () => ArrayLike<number>;
    /** The first slice of time in which it is seen; -1: in none. */
    began: number;
    /** Worked out where it is drawn: lists of slices for each of many thousand threads would take hundreds of megabytes. */
    strip: () => Strip;
}

/** Sums by slice of time. */
interface Strip {
    all: Float64Array;
    known: Float64Array;
    remote: Float64Array;
}

export function threads(context: Context): View {
    const { model, store } = context;
    const hasWaits = model.head.threads.some((row) => row.wait_cycles !== null);
    const waiting: Column<Line> = {
        name: "wait",
        title: "Waits",
        value: (line) => line.row?.wait_cycles ?? -1,
        cell: (line) => waits(context, line.row),
        isWide: true,
    };
    const table = new Table<Line>(store, {
        name: "threads",
        caption: "Threads",
        sortedBy: "share",
        rowsShown: 16,
        searchHint: "Search threads",
        text: (line) => `${line.thread} ${model.threadName(line.thread)} ${line.row?.start_function ?? ""}`,
        key: (line) => String(line.thread),
        isChosen: (line) => store.filter.thread === line.thread && line.thread >= 0,
        canChoose: (line) => line.thread >= 0 && model.foldedThreads[line.thread] === 0,
        choose: (line) => store.toggle({ thread: line.thread }),
        label: (line) => `thread ${line.thread} ${model.threadName(line.thread)}`,
        columns: [
            {
                name: "thread",
                title: "Thread",
                isText: true,
                value: (line) => (line.thread < 0 ? Infinity : line.thread),
                cell: (line) => [
                    h("span", { class: "name" }, line.thread < 0 ? "others" : `${line.thread}`),
                    h("span", { class: "place" }, model.threadName(line.thread)),
                ],
            },
            { name: "node", title: "Node", value: (line) => line.row?.node ?? -1, cell: (line) => line.row?.node ?? "–" },
            { name: "cpu", title: "CPU", value: (line) => line.row?.cpu ?? -1, cell: (line) => line.row?.cpu ?? "–", isWide: true },
            {
                name: "share",
                title: "Share",
                term: "Threads",
                value: (line) => line.share[0],
                cell: (line) => estimateCell(line.share),
                hint: (line) =>
                    `${share(line.share)}; ${count(Math.round(line.accesses))} ${said.many}, ` +
                    `${line.samples} ${line.samples === 1 ? "sample" : "samples"}`,
            },
            remoteColumn(),
            {
                name: "writes",
                title: "Writes",
                term: "writes",
                value: (line) => line.writes[0],
                cell: (line) => estimateCell(line.writes),
                isWide: true,
            },
            nodesColumn(context, "on", "Served by", "Served", (line) => line.on()),
            ...(hasWaits ? [waiting] : []),
            {
                name: "time",
                title: "Over time",
                value: (line) => line.began,
                cell: (line) => strip(context, line),
                isWide: false,
            },
        ],
    });
    const detail = h("div", { class: "thread-detail" });
    const element = h(
        "section",
        { class: "card threads", id: "threads-section", tabindex: -1, "aria-label": "Threads" },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Threads", "Counted or sampled")),
            h("span", { class: "faint hint" }, `Choose one to see only its ${said.many}`),
        ),
        table.element,
        detail,
    );
    return {
        element,
        render: (selection) => {
            table.render(linesOf(context, selection));
            replace(detail, ...(selection.filter.thread >= 0 ? flow(context, selection) : []));
        },
    };
}

function waits({ model }: Context, row: ThreadRow | undefined): string {
    if (row?.wait_cycles === null || row === undefined || model.head.clock_khz <= 0) return "–";
    return timeNs(Math.round((row.wait_cycles / model.head.clock_khz) * 1e6));
}

function linesOf({ model, store }: Context, selection: Selection): Line[] {
    const { rows, head } = model;
    const size = head.threads.length;
    const n = head.nodes.length;
    const column = model.threadGroup;
    const parts = selection.by("thread", column, size + 1, THREAD);
    const all = parts.all.all();
    // Rows that pass, in one chain for each thread.
    const [first, began] = [new Int32Array(size + 1).fill(-1), new Int32Array(size + 1).fill(-1)];
    const next = new Int32Array(rows.count);
    selection.each(THREAD, (i) => {
        const group = column[i];
        [next[i], first[group]] = [first[group], i];
        if (began[group] < 0 || model.rowBin[i] < began[group]) began[group] = model.rowBin[i];
    });
    const follow = (group: number, visit: (row: number) => void): void => {
        for (let i = first[group]; i >= 0; i = next[i]) visit(i);
    };
    const nodes = (group: number): Float64Array => {
        const on = new Float64Array(n);
        follow(group, (i) => {
            if (rows.home[i] >= 0) on[rows.home[i]] += rows.weight[i];
        });
        const sum = on.reduce((a, b) => a + b, 0);
        return on.map((value) => (sum > 0 ? value / sum : 0));
    };
    const isFiltered = store.conditions().some((name) => name !== "thread");
    const folded = head.threads.reduce((sum, row, thread) => sum + (model.foldedThreads[thread] === 1 ? row.samples : 0), 0);
    const lines: Line[] = [];
    for (let group = 0; group <= size; group++) {
        const row = head.threads[group];
        const tally = parts.all.tally(group);
        if (tally.samples === 0 && (isFiltered || group === size)) continue;
        // Without a filter, folded threads have lines of their own: these are not told twice.
        if (!isFiltered && group === size && tally.samples <= folded) continue;
        const own = !isFiltered && row;
        lines.push({
            thread: group === size ? -1 : group,
            row,
            share: own ? row.share : shareOf(tally, all),
            remote: own ? row.remote : shareOf(parts.remote.tally(group), parts.known.tally(group)),
            writes: own ? row.writes : shareOf(parts.writes.tally(group), tally),
            accesses: own ? row.accesses[0] : total(tally)[0],
            samples: own ? row.samples : tally.samples,
            on: () => (own ? row.on_node.map((share) => share[0]) : nodes(group)),
            began: began[group],
            strip: () => stripOf(model, (visit) => follow(group, visit)),
        });
    }
    return lines;
}

function stripOf({ rows, rowBin, bins }: Model, each: (visit: (row: number) => void) => void): Strip {
    const [all, known, remote] = Array.from({ length: 3 }, () => new Float64Array(bins));
    each((i) => {
        const bin = rowBin[i];
        all[bin] += rows.weight[i];
        if (rows.reach[i] !== UNKNOWN) known[bin] += rows.weight[i];
        if (rows.reach[i] === REMOTE) remote[bin] += rows.weight[i];
    });
    return { all, known, remote };
}

/** A thread's time: taller where it is busier, coloured by how far its accesses go. */
function strip({ model }: Context, line: Line): HTMLElement {
    if (line.thread >= 0 && model.foldedThreads[line.thread] === 1) return h("span", { class: "faint" }, "folded");
    const canvas = h("canvas", { class: "spark", "aria-hidden": "true" });
    const [width, height] = [150, 18];
    const context = prepare(canvas, width, height);
    const { all, known, remote } = line.strip();
    const most = all.reduce((a, b) => Math.max(a, b), 0);
    const step = width / model.bins;
    for (let bin = 0; bin < model.bins; bin++) {
        const value = all[bin];
        if (value <= 0) continue;
        const tall = Math.max((value / most) * height, 1);
        context.fillStyle = palette.distance(known[bin] > 0 ? remote[bin] / known[bin] : NaN);
        context.fillRect(bin * step, height - tall, Math.max(step, 0.7), tall);
    }
    return canvas;
}

/** A thread's accesses one after the other: its event flow. */
function flow({ model, store }: Context, selection: Selection): HTMLElement[] {
    const { rows, head } = model;
    const thread = store.filter.thread;
    const row = head.threads[thread];
    const process = head.processes[row?.process ?? 0];
    const facts = row
        ? `Thread ${thread} (tid ${row.tid}, ` +
          `${row.start_function ? `began in ${elide(row.start_function, 200)}` : "start unknown"}${process ? `, process ${process.pid}` : ""}) lived ` +
          `from ${timeNs(row.start)} to ${row.end === null ? "the end" : timeNs(row.end)}.`
        : "";
    const events: number[] = [];
    let passed = 0;
    selection.each(0, (i) => {
        passed++;
        if (events.length < EVENTS) events.push(i);
    });
    const cells = events.map((i) => {
        const instance = rows.instance[i];
        const site = rows.site[i];
        return h(
            "tr",
            {},
            h("td", { class: "number" }, timeNs(Math.round(rows.time[i]))),
            h("td", {}, (rows.flags[i] & WRITE) !== 0 ? "write" : "read"),
            h(
                "td",
                { class: "text" },
                site < 0
                    ? model.keyKind[rows.key[i]] === OTHER_OBJECTS
                        ? "(other objects)"
                        : "(no known object)"
                    : h(
                          "button",
                          {
                              type: "button",
                              class: "link name",
                              disabled: model.foldedSites[site] === 1,
                              click: () => store.set({ site, instance: -1 }),
                          },
                          model.sites[site].name,
                      ),
                instance >= 0 ? h("span", { class: "place" }, `#${model.instances.id[instance]}`) : null,
            ),
            h("td", { class: "number" }, rows.page.length > 0 && rows.page[i] >= 0 ? rows.page[i] : "–"),
            h("td", {}, model.nodeName(rows.from[i])),
            h("td", {}, model.nodeName(rows.home[i])),
            h("td", { class: "text" }, h("span", { class: "name" }, rows.leaf[i] < 0 ? "–" : model.functions[rows.leaf[i]].name)),
            h("td", { class: "number" }, count(rows.weight[i])),
        );
    });
    const title = model.isCells ? `Its ${said.many}, summed up by slice of time` : `Its event flow: sampled ${said.many} in order`;
    return [
        h("p", { class: "facts" }, facts),
        h(
            "details",
            { class: "flow" },
            h("summary", {}, `${title} (${Math.min(passed, EVENTS)} of ${count(passed)})`),
            h(
                "div",
                { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
                h(
                    "table",
                    { class: "plain" },
                    h(
                        "thead",
                        {},
                        h(
                            "tr",
                            {},
                            ...["Time", "What", "Object", "Page", "From", "Home", "Function", "Stands for"].map((c) => h("th", { scope: "col" }, c)),
                        ),
                    ),
                    h("tbody", {}, ...cells),
                ),
            ),
        ),
        h(
            "p",
            { class: "faint" },
            passed === 0
                ? `None of its ${said.many} passes the other filters.`
                : `${percent(rows.thread.reduce((sum, of) => sum + (of === thread ? 1 : 0), 0) / rows.count)} of the page's rows belong to this thread.`,
        ),
    ];
}
