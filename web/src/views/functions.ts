// Functions: their own accesses, and those of everything they call.

import { defined } from "../definitions";
import { h } from "../dom";
import { isOfNothing, shareOf, total, type Tally } from "../estimate";
import { count, percent, share } from "../format";
import type { Estimate } from "../payload";
import { CODE, Sums, type Selection } from "../selection";
import { Table } from "../table";
import type { Context, View } from "../view";
import { said } from "../words";
import { estimateCell, remoteColumn, shareCell } from "./columns";

interface Line {
    fn: number;
    own: Estimate;
    accesses: number;
    under: number;
    remote: Estimate;
    writes: Estimate;
    samples: number;
    line: number;
}

export function functions(context: Context): View {
    const { model, store } = context;
    const name = (line: Line): string => model.functions[line.fn].name;
    const place = (line: Line): string => {
        const fn = model.functions[line.fn];
        const path = fn.file || fn.module;
        return path.slice(path.lastIndexOf("/") + 1) + (fn.file && line.line > 0 ? `:${line.line}` : "");
    };
    const table = new Table<Line>(store, {
        name: "functions",
        caption: "Functions",
        sortedBy: "own",
        rowsShown: 10,
        searchHint: "Search functions",
        text: (line) => `${name(line)} ${place(line)}`,
        key: (line) => String(line.fn),
        isChosen: (line) => store.filter.fn === line.fn,
        choose: (line) => store.toggle({ fn: line.fn }),
        label: name,
        columns: [
            {
                name: "function",
                title: "Function",
                isText: true,
                value: (line) => name(line).toLowerCase(),
                cell: (line) => [h("span", { class: "name" }, name(line)), h("span", { class: "place" }, place(line))],
                hint: name,
            },
            {
                name: "own",
                title: "Own",
                term: "Functions",
                value: (line) => line.own[0],
                cell: (line) => estimateCell(line.own),
                hint: (line) => `${share(line.own)}; ${count(Math.round(line.accesses))} ${said.many}, ${line.samples} samples`,
            },
            {
                name: "under",
                title: "With callees",
                value: (line) => line.under,
                cell: (line) => shareCell(line.under),
                // Folded call stacks have lost the functions that call.
                hint: (line) => (model.head.grain.folded.stacks > 0 ? `at least ${percent(line.under)}` : percent(line.under)),
                isWide: true,
            },
            remoteColumn(),
            {
                name: "writes",
                title: "Writes",
                term: "writes",
                value: (line) => line.writes[0],
                cell: (line) => estimateCell(line.writes),
                hint: (line) => (isOfNothing(line.writes) ? "" : percent(line.writes[0])),
            },
        ],
        note: () =>
            model.isCells
                ? `Rare call stacks (${percent(model.head.grain.folded.stacks)} of the ${said.many}) are folded into their code address, or into other code.`
                : null,
    });
    const element = h(
        "section",
        { class: "card functions", "aria-label": "Functions" },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Functions", "Functions")),
            h("span", { class: "faint hint" }, "A filter includes a function and all that it calls"),
        ),
        table.element,
    );
    return { element, render: (selection) => table.render(lines(context, selection)) };
}

function lines({ model, store }: Context, selection: Selection): Line[] {
    const { rows } = model;
    const size = model.functions.length;
    const own = selection.by("leaf", rows.leaf, size, CODE);
    const byCode = new Sums(model.codes.length);
    const all: Tally = { samples: 0, weight: 0, variance: 0 };
    selection.each(CODE, (i) => {
        byCode.weight[rows.code[i]] += rows.weight[i];
        all.samples += rows.samples[i];
        all.weight += rows.weight[i];
        all.variance += rows.variance[i];
    });
    const under = new Float64Array(size);
    const lineOf = new Int32Array(size);
    const heaviest = new Float64Array(size);
    model.codes.forEach((frames, code) => {
        const weight = byCode.weight[code];
        if (weight <= 0) return;
        for (const fn of model.codeFns[code]) under[fn] += weight;
        const leaf = frames[frames.length - 1];
        if (leaf && weight > heaviest[leaf.fn]) [heaviest[leaf.fn], lineOf[leaf.fn]] = [weight, leaf.line];
    });
    const isFiltered = store.conditions().some((name) => name !== "fn");
    const found: Line[] = [];
    for (let fn = 0; fn < size; fn++) {
        if (under[fn] <= 0) continue;
        const row = isFiltered ? undefined : model.functionRows.get(fn);
        const tally = own.all.tally(fn);
        found.push({
            fn,
            own: row?.share ?? shareOf(tally, all),
            accesses: row?.accesses[0] ?? total(tally)[0],
            under: all.weight > 0 ? under[fn] / all.weight : 0,
            remote: row?.remote ?? shareOf(own.remote.tally(fn), own.known.tally(fn)),
            writes: row?.writes ?? shareOf(own.writes.tally(fn), tally),
            samples: row?.samples ?? tally.samples,
            line: row?.line ?? lineOf[fn],
        });
    }
    return found;
}
