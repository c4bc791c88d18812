// What is chosen now, always in sight, each condition with a way to lift it.

import { h, replace } from "../dom";
import { percent, plural, timeNs } from "../format";
import { isNotSampled } from "../homes";
import { FROM, HOME, ONLY, type Selection } from "../selection";
import { NOTHING, type Filter, type Only } from "../store";
import type { Context, View } from "../view";
import { said } from "../words";
import { jump } from "./overview";

const SECTIONS: readonly [id: string, title: string][] = [
    ["top", "Findings"],
    ["time-section", "Time"],
    ["objects-section", "Objects"],
    ["heap-section", "Heap"],
    ["java-section", "Java"],
    ["code-section", "Code"],
    ["threads-section", "Threads"],
    ["nodes-section", "Nodes"],
    ["metrics-section", "Metrics"],
    ["about-section", "About"],
];

/** The sections of a page of allocations alone. */
const OF_HEAP = new Set(["heap-section", "java-section", "about-section"]);

/** The sections that a page without sampled accesses leaves out. */
const OF_ACCESSES = new Set(["time-section", "code-section", "nodes-section", "metrics-section"]);

export function filterBar(context: Context): View {
    const { model, store } = context;
    const chips = h("div", { class: "chips", role: "group", "aria-label": "Filters", "aria-live": "polite" });
    const only = h(
        "select",
        { "aria-label": `Which ${said.many}`, change: () => store.set({ only: only.value as Only }) },
        ...[
            ["", `all ${said.many}`],
            ["remote", "remote only"],
            ["local", "local only"],
            ["reads", "reads only"],
            ["writes", "writes only"],
        ].map(([value, text]) => h("option", { value }, text)),
    );
    const { heap, sampled_heap: java, heap_only: isHeapOnly } = model.head;
    const isLeftOut = (id: string): boolean => (heap === null && id === "heap-section") || (java === null && id === "java-section");
    const isWanted = (id: string): boolean => (isHeapOnly ? OF_HEAP.has(id) : !(isNotSampled(context) && OF_ACCESSES.has(id)));
    const shown = SECTIONS.filter(([id]) => isWanted(id) && !isLeftOut(id));
    const sections = h("nav", { "aria-label": "Sections" }, ...shown.map(([id, title]) => h("a", { href: `#${id}`, click: jump(id) }, title)));
    const element = h("div", { class: "filterbar" }, sections, h("div", { class: "filters" }, chips, !isHeapOnly && !isNotSampled(context) && only));
    return {
        element,
        render: (selection) => {
            only.value = store.filter.only;
            const names = store.conditions().filter((name) => name !== "only");
            const passing = selection.whole().all.weight[0];
            const all = model.allWeight;
            const atLeast = isLowerBound(context, selection) ? "at least " : "";
            replace(
                chips,
                store.refused.length > 0 &&
                    h("span", { class: "warning" }, `This page cannot filter by ${store.refused.join(" and ")}, which it holds only summed up with others.`),
                ...names.map((name) => chip(context, name)),
                store.isFiltered() &&
                    all > 0 &&
                    h(
                        "span",
                        { class: "passing" },
                        `${atLeast}${percent(passing / all)} of ${said.many}, estimated from ` +
                            `${plural(selection.whole().all.samples[0], "sample", "samples")}`,
                    ),
                store.isFiltered() && h("button", { type: "button", class: "quiet", click: () => store.clear() }, "Clear all"),
            );
        },
    };
}

/** Whether more may pass than is known: folded call stacks have lost the functions that call, and accesses to unknown homes pass no filter by homes. */
function isLowerBound({ model, store }: Context, selection: Selection): boolean {
    const { fn, only, home, from } = store.filter;
    if (fn >= 0 && model.head.grain.folded.stacks > 0) return true;
    if (home < 0 && from < 0 && only !== "remote" && only !== "local") return false;
    const { known, all } = selection.whole(ONLY | HOME | FROM);
    return known.samples[0] < all.samples[0];
}

/** A condition in words. */
export function words({ model, store }: Context, name: keyof Filter): string {
    const { filter } = store;
    switch (name) {
        case "time":
            return filter.time ? `${timeNs(filter.time[0])} to ${timeNs(filter.time[1])}` : "";
        case "from":
            return `from ${model.nodeName(filter.from)}`;
        case "home":
            return `memory of ${model.nodeName(filter.home)}`;
        case "thread":
            return `thread ${filter.thread} ${model.threadName(filter.thread)}`;
        case "site":
            return `object ${model.sites[filter.site].name}`;
        case "instance":
            return `object #${model.instances.id[filter.instance]} ${model.sites[model.instances.site[filter.instance]]?.name ?? ""}`;
        case "fn":
            return `in ${model.functions[filter.fn].name}`;
        case "only":
            return filter.only;
    }
}

function chip(context: Context, name: keyof Filter): HTMLElement {
    const text = words(context, name);
    return h(
        "button",
        {
            type: "button",
            class: "chip",
            "data-filter": name,
            title: `Remove: ${text}`,
            "aria-label": `Remove filter ${text}`,
            click: () => context.store.set({ [name]: NOTHING[name] }),
        },
        h("span", { class: "chip-text" }, text),
        h("span", { "aria-hidden": "true" }, "×"),
    );
}
