// Who reaches whose memory: accessing nodes down, home nodes across.

import { defined } from "../definitions";
import { h, replace } from "../dom";
import { total } from "../estimate";
import { count, marginWords as marginOf, percent, shortPercent } from "../format";
import * as palette from "../palette";
import type { Estimate } from "../payload";
import { FROM, HOME, type Selection } from "../selection";
import type { Context, View } from "../view";
import { said } from "../words";

/** Beyond these, cells are colours only; their figures stay in their tool tips and names. */
const WITH_FIGURES = 12;

export function matrix(context: Context): View {
    const { model, store } = context;
    const box = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Node to node" });
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
            replace(box, draw(context, selection));
            const counted = !store.isFiltered() && model.head.matrix.source === "counted";
            how.textContent = counted ? "Counted, exact." : "Estimated from samples; intervals are in each cell's tool tip.";
        },
    };
}

function draw(context: Context, selection: Selection): HTMLElement {
    const { model, store } = context;
    const { head } = model;
    const n = head.nodes.length;
    const isFiltered = store.conditions().some((name) => name !== "from" && name !== "home");
    const sums = selection.matrix(FROM | HOME);
    const cell = (from: number, home: number): Estimate => (isFiltered ? total(sums.tally(from * n + home)) : head.matrix.accesses[from][home]);
    const values = head.nodes.map((_, from) => head.nodes.map((_, home) => cell(from, home)));
    const all = values.flat().reduce((sum, value) => sum + value[0], 0);
    const most = Math.max(...values.flat().map((value) => value[0]), 0);
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
                const share = all > 0 ? value[0] / all : 0;
                const strength = most > 0 ? value[0] / most : 0;
                const isChosen = filter.from === from && filter.home === home;
                const hint =
                    `${model.nodeName(from)} to memory of ${model.nodeName(home)}: ` +
                    `${count(Math.round(value[0]))}${marginOf(value)} ${said.many}, ${percent(share)}`;
                return h(
                    "td",
                    { class: `${from === home ? "local" : ""}${isChosen ? " chosen" : ""}` },
                    h(
                        "button",
                        {
                            type: "button",
                            class: "cell",
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
            withFigures && h("td", { class: "sum" }, shortPercent(all > 0 ? values[from].reduce((sum, value) => sum + value[0], 0) / all : 0)),
        ),
    );
    const sumsBelow =
        withFigures &&
        h(
            "tr",
            { class: "sums" },
            h("th", { scope: "row" }, "served"),
            ...head.nodes.map((_, home) =>
                h("td", { class: "sum" }, shortPercent(all > 0 ? values.reduce((sum, row) => sum + row[home][0], 0) / all : 0)),
            ),
            h("td"),
        );
    return h(
        "table",
        { class: withFigures ? "matrix-table" : "matrix-table dense" },
        h("caption", { class: "unseen" }, `Share of ${said.inFull} from each node (rows) to memory of each node (columns)`),
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
}
