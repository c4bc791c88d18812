// The heap: what each allocation site allocated, kept and freed. Counted, not sampled; of the whole page, whatever the filters choose.

import { defined } from "../definitions";
import { h } from "../dom";
import { bytes, count, percent, plural, timeNs } from "../format";
import type { Heap, HeapSite, HeapUse } from "../payload";
import { Table } from "../table";
import type { Context, View } from "../view";
import { shareCell, siteColumn } from "./columns";

/** The view, or null where no heap block was recorded. */
export function heap({ model, store }: Context): View | null {
    const { heap, heap_only } = model.head;
    if (!heap) return null;
    const remote = (use: HeapUse): number => (use.remote_frees !== null && use.frees > 0 ? use.remote_frees / use.frees : -1);
    const ofPeak = (row: HeapSite): number => (heap.peak_bytes > 0 ? row.at_peak_bytes / heap.peak_bytes : 0);
    const table = new Table<HeapSite>(store, {
        name: "heap",
        caption: "Heap by allocation site",
        sortedBy: "peak",
        rowsShown: 10,
        searchHint: "Search allocation sites",
        text: (row) => `${row.name} ${row.place} ${row.function}`,
        key: (row) => String(row.site),
        columns: [
            siteColumn("Allocation site"),
            {
                name: "peak",
                title: "At the peak",
                term: "At the peak",
                value: (row) => row.at_peak_bytes,
                cell: (row) => [shareCell(ofPeak(row))[0], h("span", { class: "over" }, bytes(row.at_peak_bytes))],
                hint: (row) => `${percent(ofPeak(row))} of ${bytes(heap.peak_bytes)}`,
            },
            { name: "bytes", title: "Own peak", value: (row) => row.peak_live_bytes, cell: (row) => bytes(row.peak_live_bytes) },
            { name: "allocs", title: "Allocations", value: (row) => row.allocations, cell: (row) => count(row.allocations), hint: rate },
            {
                name: "total",
                title: "Allocated",
                value: (row) => row.allocated_bytes,
                cell: (row) => bytes(row.allocated_bytes),
                isWide: true,
            },
            {
                name: "left",
                title: "Never freed",
                value: (row) => row.left_bytes,
                cell: (row) => bytes(row.left_bytes),
                hint: (row) => plural(row.left_blocks, "block", "blocks"),
            },
            {
                name: "life",
                title: "Lifetime",
                term: "Lifetime",
                value: (row) => row.median_lifetime_ns ?? -1,
                cell: (row) => (row.median_lifetime_ns === null ? "–" : timeNs(row.median_lifetime_ns)),
                isWide: true,
            },
            {
                name: "threads",
                title: "Threads",
                value: (row) => row.allocating_threads,
                cell: (row) => `${row.allocating_threads} › ${row.freeing_threads ?? "?"}`,
                hint: (row) => `${plural(row.allocating_threads, "thread", "threads")} allocated, ${row.freeing_threads ?? "unknown which"} freed`,
                isWide: true,
            },
            {
                name: "remote",
                title: "Remote frees, %",
                term: "Remote frees",
                value: remote,
                cell: (row) => (remote(row) < 0 ? "–" : shareCell(remote(row), "--remote-bar")),
                hint: (row) => (remote(row) < 0 ? "not known" : `${percent(remote(row))} of ${count(row.frees)} frees`),
            },
        ],
        note: () => {
            const more = heap.site_count - heap.sites.length;
            return more > 0 ? `${plural(more, "more site is", "more sites are")} in the text report and the CSV table.` : null;
        },
    });
    const element = h(
        "section",
        { class: "card heap", id: "heap-section", tabindex: -1, "aria-label": "Heap" },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Heap", "The heap")),
            h("span", { class: "faint hint" }, heap_only ? "Counted" : "Counted; filters do not apply"),
        ),
        h("p", { class: "heap-totals" }, totals(heap)),
        table.element,
    );
    return { element, render: () => table.render(heap.sites) };
}

function rate(use: HeapUse): string {
    return use.allocations_per_second === null ? "" : `${count(use.allocations_per_second)} per second`;
}

function totals({ total, peak_bytes, peak_blocks, peak_time }: Heap): string {
    const at = peak_time === null ? "" : ` at ${timeNs(peak_time)}`;
    const left = total.left_blocks > 0 ? `${bytes(total.left_bytes)} in ${plural(total.left_blocks, "block", "blocks")} never freed` : "all freed";
    const held = `${bytes(peak_bytes)} in ${plural(peak_blocks, "block", "blocks")} at the peak${at}`;
    const all = `${plural(total.allocations, "allocation", "allocations")} of ${bytes(total.allocated_bytes)} in all`;
    return `${held}; ${all}; ${left}.`;
}
