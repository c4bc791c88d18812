// The page: unpacks its data, builds the views, and draws them again whenever the reader chooses something.

import { prepareDefinitions } from "./definitions";
import { append, h } from "./dom";
import { isNotSampled } from "./homes";
import { Model } from "./model";
import { followTheme } from "./palette";
import { unpack } from "./payload";
import { Selection } from "./selection";
import { NOTHING, Store } from "./store";
import type { Context, View } from "./view";
import { about } from "./views/about";
import { filterBar } from "./views/filterbar";
import { flame } from "./views/flame";
import { functions } from "./views/functions";
import { heap } from "./views/heap";
import { latency } from "./views/latency";
import { matrix } from "./views/matrix";
import { metrics } from "./views/metrics";
import { objectDetail } from "./views/object";
import { objects } from "./views/objects";
import { jump, masthead, overview } from "./views/overview";
import { sampledHeap } from "./views/sampled";
import { threads } from "./views/threads";
import { timeline } from "./views/timeline";
import { topology } from "./views/topology";
import { sayWhat } from "./words";

async function start(): Promise<void> {
    const data = document.getElementById("data");
    if (!data) throw new Error("the page holds no data");
    const { head, columns } = await unpack(data.textContent ?? "");
    // Some megabytes that nobody needs twice.
    data.remove();
    sayWhat(head.counted);
    const model = new Model(head, columns);
    const store = new Store(model);
    const context: Context = { model, store };
    const views = build(context, prepareDefinitions(head.definitions));
    const render = (): void => {
        performance.mark("filter-start");
        followTheme();
        const selection = new Selection(model, store.filter);
        keepFocus(() => {
            for (const view of views) view.render(selection);
        });
        performance.measure("filter", "filter-start");
    };
    let isDue = false;
    const soon = (): void => {
        if (isDue) return;
        isDue = true;
        requestAnimationFrame(() => {
            isDue = false;
            render();
        });
    };
    store.onChange(soon);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
    document.addEventListener("numapilot-theme", soon);
    onPaper(render);
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
        if (window.innerWidth !== width) soon();
        width = window.innerWidth;
    });
    render();
    document.documentElement.dataset["ready"] = "yes";
    performance.mark("first-picture");
}

/** Puts the views on the page; returns them in the order in which they are drawn. */
function build(context: Context, definitions: HTMLDialogElement): View[] {
    const bar = filterBar(context);
    const table = objects(context);
    const [first, machine, time, detail] = [overview(context), topology(context), timeline(context), objectDetail(context)];
    const [graph, list, strips, nodes, waits, series, rest] = [
        flame(context),
        functions(context),
        threads(context),
        matrix(context),
        latency(context),
        metrics(context),
        about(context),
    ];
    const [memory, java] = [heap(context), sampledHeap(context)];
    const top = h(
        "header",
        { class: "top" },
        h("div", { class: "brand", "aria-hidden": "true" }, "numa", h("b", {}, "pilot")),
        masthead(context),
        h(
            "div",
            { class: "tools" },
            h("button", { type: "button", class: "quiet", title: "Definitions (?)", click: () => definitions.showModal() }, "Definitions"),
            h("button", { type: "button", class: "quiet", title: "Light or dark (t)", click: turnTheme }, "Light / dark"),
        ),
    );
    const isHeapOnly = memory !== null && context.model.head.heap_only;
    // Of accesses that were not sampled, pictures would show nothing where there is something: objects and threads are known without them.
    const few = isHeapOnly ? [first, memory, java, rest] : isNotSampled(context) ? [first, table, detail, memory, java, strips, rest] : null;
    const cards = few?.map((view) => view?.element) ?? [
        h("div", { class: "first" }, first.element, machine.element),
        time.element,
        table.element,
        detail.element,
        memory?.element,
        java?.element,
        graph.element,
        list.element,
        strips.element,
        h("div", { class: "halves" }, nodes.element, waits.element),
        series.element,
        rest.element,
    ];
    const main = h("main", { id: "top", tabindex: -1 }, ...cards);
    append(document.body, [
        isHeapOnly
            ? h("a", { href: "#heap-section", class: "skip", click: jump("heap-section") }, "Skip to the heap")
            : h("a", { href: "#objects-section", class: "skip", click: jump("objects-section") }, "Skip to the objects"),
        top,
        bar.element,
        main,
        definitions,
    ]);
    keys(context, definitions, () => table.focusSearch());
    const drawn = few ?? [first, machine, time, table, detail, memory, java, graph, list, strips, nodes, waits, series, rest];
    return [bar, ...drawn].filter((view) => view !== null);
}

const focusable = (within: Element): HTMLElement[] => [
    ...within.querySelectorAll<HTMLElement>("a[href], button:not(:disabled), input, select, summary, [tabindex='0']"),
];

/** Draws the views. What had the focus may be made anew: then the one in its place gets it, or who chooses by keyboard would start over at the top. */
function keepFocus(draw: () => void): void {
    const before = document.activeElement;
    const home = before?.closest("section, .filterbar");
    const place = home ? focusable(home).indexOf(before as HTMLElement) : -1;
    draw();
    if (!home || place < 0 || before?.isConnected || document.activeElement !== document.body) return;
    const now = focusable(home);
    now[Math.min(place, now.length - 1)]?.focus({ preventScroll: true });
}

/** On paper, pictures have the colours of a light page: what the script paints in those of a dark one would hardly be seen on white. */
function onPaper(render: () => void): void {
    const { dataset } = document.documentElement;
    let before: string | undefined;
    window.addEventListener("beforeprint", () => {
        before = dataset["theme"];
        dataset["theme"] = "light";
        render();
    });
    window.addEventListener("afterprint", () => {
        if (before === undefined) delete dataset["theme"];
        else dataset["theme"] = before;
        render();
    });
}

function turnTheme(): void {
    const root = document.documentElement;
    const isDark = root.dataset["theme"] ? root.dataset["theme"] === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset["theme"] = isDark ? "light" : "dark";
    document.dispatchEvent(new Event("numapilot-theme"));
}

/** `/` searches, `t` turns the theme, `?` defines, escape lifts the last filter. */
function keys({ store }: Context, definitions: HTMLDialogElement, search: () => void): void {
    document.addEventListener("keydown", (event) => {
        const target = event.target as HTMLElement;
        const isTyping = target instanceof HTMLInputElement || target instanceof HTMLSelectElement;
        if (event.ctrlKey || event.metaKey || event.altKey || definitions.open) return;
        if (event.key === "Escape") {
            if (isTyping) target.blur();
            else {
                const last = store.conditions().at(-1);
                if (last) store.set({ [last]: NOTHING[last] });
            }
        }
        if (isTyping) return;
        if (event.key === "/") {
            event.preventDefault();
            search();
        } else if (event.key === "t") turnTheme();
        else if (event.key === "?") definitions.showModal();
    });
}

function fail(error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    append(document.body, [
        h(
            "p",
            { class: "failure", role: "alert" },
            `This page cannot be shown: ${text}. It needs a browser of 2023 or later, and must have been saved whole.`,
        ),
    ]);
    throw error;
}

start().catch(fail);
