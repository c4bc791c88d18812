// Objects of Java: what each class and line allocated, estimated from the objects that were sampled; of the whole page, whatever the filters choose.

import { defined } from "../definitions";
import { h } from "../dom";
import { isExact } from "../estimate";
import { bytes, count, percent, plural, timeNs } from "../format";
import type { Estimate, SampledHeap, SampledSite } from "../payload";
import { Table } from "../table";
import type { Context, View } from "../view";
import { shareCell, siteColumn } from "./columns";

/** The view, or null where no object was sampled. */
export function sampledHeap({ model, store }: Context): View | null {
    const { sampled_heap: heap, heap_only } = model.head;
    if (!heap) return null;
    const ofAll = (row: SampledSite): number => (heap.total.allocated_bytes[0] > 0 ? row.allocated_bytes[0] / heap.total.allocated_bytes[0] : 0);
    const table = new Table<SampledSite>(store, {
        name: "sampled",
        caption: "Objects of Java by class and line",
        sortedBy: "bytes",
        rowsShown: 10,
        searchHint: "Search classes and lines",
        text: (row) => `${row.name} ${row.place} ${row.function}`,
        key: (row) => String(row.site),
        columns: [
            siteColumn("Class and line"),
            {
                name: "bytes",
                title: "~ Allocated",
                term: "Allocated, estimated",
                value: (row) => row.allocated_bytes[0],
                cell: (row) => [shareCell(ofAll(row))[0], h("span", { class: "over" }, about(row.allocated_bytes))],
                hint: (row) => `${range(row.allocated_bytes, bytes)}; ${percent(ofAll(row))} of all`,
            },
            {
                name: "objects",
                title: "~ Objects",
                value: (row) => row.allocations[0],
                cell: (row) => count(Math.round(row.allocations[0])),
                hint: (row) => range(row.allocations, (value) => count(Math.round(value))),
            },
            { name: "samples", title: "Samples", value: (row) => row.samples, cell: (row) => count(row.samples) },
            {
                name: "peak",
                title: "~ At the peak",
                value: (row) => row.at_peak_bytes[0],
                cell: (row) => about(row.at_peak_bytes),
                hint: (row) => range(row.at_peak_bytes, bytes),
                isWide: true,
            },
            {
                name: "left",
                title: "~ Left",
                value: (row) => row.left_bytes[0],
                cell: (row) => about(row.left_bytes),
                hint: (row) => range(row.left_bytes, bytes),
                isWide: true,
            },
            { name: "threads", title: "Threads", value: (row) => row.allocating_threads, cell: (row) => count(row.allocating_threads), isWide: true },
        ],
        note: () => {
            const more = heap.site_count - heap.sites.length;
            return more > 0 ? `${plural(more, "more site is", "more sites are")} in the text report.` : null;
        },
    });
    const element = h(
        "section",
        { class: "card sampled", id: "java-section", tabindex: -1, "aria-label": "Objects of Java" },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Objects of Java", "Objects of Java")),
            h("span", { class: "faint hint" }, heap_only ? "Estimated from samples" : "Estimated from samples; filters do not apply"),
        ),
        h("p", { class: "heap-totals" }, totals(heap)),
        table.element,
    );
    return { element, render: () => table.render(heap.sites) };
}

/** Bytes, as well as they are known. */
function about(estimate: Estimate): string {
    const half = (estimate[2] - estimate[1]) / 2;
    if (isExact(estimate) || estimate[0] <= 0) return bytes(estimate[0]);
    return `${bytes(estimate[0])} ± ${Math.max(1, Math.round((half / estimate[0]) * 100))} %`;
}

function range(estimate: Estimate, shown: (value: number) => string): string {
    const [low, high] = [shown(estimate[1]), shown(estimate[2])];
    return low === high ? `about ${low}` : `95 % interval: ${low} to ${high}`;
}

function totals({ total, interval_bytes: [least, most], peak_time }: SampledHeap): string {
    const interval = least === most ? bytes(least) : `${bytes(least)} to ${bytes(most)}`;
    const each = most === 0 ? "each object that was allocated" : `one for each ${interval} that a thread allocated, on average`;
    const all = `about ${bytes(total.allocated_bytes[0])} in ${count(Math.round(total.allocations[0]))} objects`;
    const peak = `most at a time, about ${bytes(total.at_peak_bytes[0])}, at ${timeNs(peak_time)}`;
    return `${plural(total.samples, "sample", "samples")}: ${each}. They stand for ${all}; ${peak}; about ${bytes(total.left_bytes[0])} at the end.`;
}
