// Who reaches whose memory: accessing nodes down, home nodes across.

import { defined } from "../definitions";
import { h, replace } from "../dom";
import { total } from "../estimate";
import { count, marginWords as marginOf, percent, shortPercent } from "../format";
import * as palette from "../palette";
import { knownHomes, leftOut, ofKnown, whyUnknown } from "../homes";
import type { Estimate } from "../payload";
import { FROM, HOME, type Selection } from "../selection";
import type { Context, View } from "../view";
import { said } from "../words";

/** Beyond these, cells are colours only; their figures stay in their tool tips and names. */
const WITH_FIGURES = 12;

export function matrix(context: Context): View {
    const { model, store } = context;
    const box = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Node to node", keydown: walk });
    const how = h("p", { class: "faint" });
    const element = h(
        "section",
        { class: "card matrix", id: "nodes-section", tabindex: -1, "aria-label": "Node to node" },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Node to node", "Matrix")),
            h("span", { class: "faint hint" }, "Choose a row, a column or a cell"),
        ),
        box,
        how,
    );
    return {
        element,
        render: (selection) => {
            const isFiltered = store.conditions().some((name) => name !== "from" && name !== "home");
            const known = knownHomes(context, selection, isFiltered, FROM | HOME);
            const why = whyUnknown(context, isFiltered, known);
            if (why !== "") {
                replace(box, h("p", { class: "nothing" }, `${why}, so accesses from node to node are not shown.`));
                how.textContent = "";
                return;
            }
            const { table, scale } = draw(context, selection, isFiltered, ofKnown(known));
            replace(box, table);
            const counted = !isFiltered && model.head.matrix.source === "counted";
            const source = counted ? "Counted, exact." : "Estimated from samples; intervals are in each cell's tool tip.";
            how.textContent = [source, scale, leftOut(known)].filter((words) => words !== "").join(" ");
        },
    };
}

/** From cell to cell by arrow keys where cells have no figures: thousands of stops for the tab key would stand before what follows. */
function walk(event: KeyboardEvent): void {
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
    const button = event.target as HTMLElement;
    const [cell, row] = [button.closest("td"), button.closest("tr")];
    if ((down === 0 && right === 0) || !cell || !row || !cell.closest(".dense")) return;
    event.preventDefault();
    const rows = row.parentElement as HTMLTableSectionElement;
    const next = rows.rows[row.sectionRowIndex + down]?.cells[cell.cellIndex + right]?.querySelector<HTMLElement>(".cell");
    if (!next) return;
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
}

/** The table, and what its strongest colour stands for where cells have no figures. `of`: what its shares are of. */
function draw(context: Context, selection: Selection, isFiltered: boolean, of: string): { table: HTMLElement; scale: string } {
    const { model, store } = context;
    const { head } = model;
    const n = head.nodes.length;
    const sums = selection.matrix(FROM | HOME);
    const cell = (from: number, home: number): Estimate => (isFiltered ? total(sums.tally(from * n + home)) : head.matrix.accesses[from][home]);
    const values = head.nodes.map((_, from) => head.nodes.map((_, home) => cell(from, home)));
    const all = values.flat().reduce((sum, value) => sum + value[0], 0);
    const most = values.flat().reduce((most, value) => Math.max(most, value[0]), 0);
    const shareOfAll = (value: number): number => (all > 0 ? value / all : NaN);
    const withFigures = n <= WITH_FIGURES;
    const { filter } = store;
    const header = (position: number, kind: "from" | "home"): HTMLElement =>
        h(
            "button",
            {
                type: "button",
                class: "quiet node-key",
                "aria-pressed": filter[kind] === position ? "true" : "false",
                click: () => store.toggle({ [kind]: position }),
                "aria-label": `${kind === "from" ? `${said.many} from` : "memory of"} ${model.nodeName(position)}`,
            },
            h("i", { style: { background: palette.node(position) } }),
            withFigures ? `n${head.nodes[position]}` : String(head.nodes[position]),
        );
    const body = head.nodes.map((_, from) =>
        h(
            "tr",
            {},
            h("th", { scope: "row" }, header(from, "from")),
            ...head.nodes.map((_, home) => {
                const value = values[from][home];
                const share = shareOfAll(value[0]);
                const strength = most > 0 ? value[0] / most : 0;
                const isChosen = filter.from === from && filter.home === home;
                const hint =
                    `${model.nodeName(from)} to memory of ${model.nodeName(home)}: ` +
                    `${count(Math.round(value[0]))}${marginOf(value)} ${said.many}, ${percent(share)} of ${of}`;
                return h(
                    "td",
                    { class: `${from === home ? "local" : ""}${isChosen ? " chosen" : ""}` },
                    h(
                        "button",
                        {
                            type: "button",
                            class: "cell",
                            // One stop for the tab key where they are many: arrow keys lead on.
                            tabindex: withFigures || (from === 0 && home === 0) ? 0 : -1,
                            title: hint,
                            "aria-label": hint,
                            "aria-pressed": isChosen ? "true" : "false",
                            style: { background: palette.load(strength * 0.9), color: palette.inkOnLoad(strength * 0.9) },
                            click: () => store.toggle({ from, home }),
                        },
                        withFigures ? shortPercent(share) : "",
                    ),
                );
            }),
            withFigures && h("td", { class: "sum" }, shortPercent(shareOfAll(values[from].reduce((sum, value) => sum + value[0], 0)))),
        ),
    );
    const sumsBelow =
        withFigures &&
        h(
            "tr",
            { class: "sums" },
            h("th", { scope: "row" }, "served"),
            ...head.nodes.map((_, home) =>
                h("td", { class: "sum" }, shortPercent(shareOfAll(values.reduce((sum, row) => sum + row[home][0], 0)))),
            ),
            h("td"),
        );
    const scale = withFigures || most <= 0 ? "" : `The strongest colour is ${percent(shareOfAll(most))} of the ${of}. Arrow keys move.`;
    const table = h(
        "table",
        { class: withFigures ? "matrix-table" : "matrix-table dense" },
        h("caption", { class: "unseen" }, `Share of ${of} from each node (rows) to memory of each node (columns)`),
        h(
            "thead",
            {},
            h(
                "tr",
                {},
                h("th", { class: "corner" }, "from ↓  home →"),
                ...head.nodes.map((_, home) => h("th", { scope: "col" }, header(home, "home"))),
                withFigures && h("th", { scope: "col" }, "made"),
            ),
        ),
        h("tbody", {}, ...body, sumsBelow),
    );
    return { table, scale };
}
