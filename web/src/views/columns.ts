// Cells and columns that several tables have.

import { h, type Child } from "../dom";
import { isOfNothing } from "../estimate";
import { bare, interval, percent, share } from "../format";
import * as palette from "../palette";
import type { Estimate } from "../payload";
import type { Column } from "../table";
import type { Context } from "../view";

/** A bar split by node, with the same in words for those who do not see it. */
export function nodeBar({ model }: Context, shares: ArrayLike<number>): HTMLElement {
    const parts = Array.from(shares, (share, position) => ({ share, position })).filter((part) => part.share > 0);
    const words = parts
        .sort((a, b) => b.share - a.share)
        .slice(0, 8)
        .map((part) => `${model.nodeName(part.position)} ${percent(part.share)}`)
        .join(", ");
    if (parts.length === 0) return h("span", { class: "faint" }, "–");
    const inOrder = [...parts].sort((a, b) => a.position - b.position);
    return h(
        "span",
        { class: "node-bar", role: "img", "aria-label": words, title: words },
        ...inOrder.map((part) => h("i", { style: { width: `${(part.share * 100).toFixed(2)}%`, background: palette.node(part.position) } })),
    );
}

/** A share as a number over a faint bar. */
export function shareCell(share: number, colour = "--bar"): Child[] {
    if (Number.isNaN(share)) return [h("span", { class: "faint" }, "–")];
    return [
        h("i", { class: "bar", style: { width: `${(Math.min(share, 1) * 100).toFixed(1)}%`, background: `var(${colour})` } }),
        h("span", { class: "over" }, bare(share)),
    ];
}

/** A share as it was estimated; none where it is of nothing. */
export function estimateCell(estimate: Estimate, colour?: string): Child[] {
    return shareCell(isOfNothing(estimate) ? NaN : estimate[0], colour);
}

/** The share of remote accesses, among those whose page's home is known. */
export function remoteColumn<R extends { remote: Estimate }>(): Column<R> {
    return {
        name: "remote",
        title: "Remote",
        term: "Remote",
        value: ({ remote }) => (isOfNothing(remote) ? -1 : remote[0]),
        cell: ({ remote }) => estimateCell(remote, "--remote-bar"),
        hint: ({ remote }) => (isOfNothing(remote) ? "no home node is known" : `${share(remote)}; ${interval(remote)}`),
    };
}

/** Shares by node, sorted by the largest of them. */
export function nodesColumn<R>(context: Context, name: string, title: string, term: string, shares: (row: R) => ArrayLike<number>): Column<R> {
    return {
        name,
        title,
        term,
        value: (row) => Math.max(0, ...Array.from(shares(row))),
        cell: (row) => nodeBar(context, shares(row)),
        isWide: true,
    };
}

/** What a row of the heap's tables is of: its name, and where that is. */
export function siteColumn<R extends { name: string; place: string; function: string }>(title: string): Column<R> {
    return {
        name: "name",
        title,
        isText: true,
        value: (row) => row.name.toLowerCase(),
        cell: (row) => [h("span", { class: "name" }, row.name), h("span", { class: "place" }, row.place)],
        hint: (row) => row.function,
    };
}
