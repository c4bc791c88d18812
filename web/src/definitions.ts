// Definitions of every figure (docs/metrics.md, carried in the page), each one click away. The document is ours, but it is rendered to elements
// like any other data.

import { append, h, replace, type Child } from "./dom";

/** `Controller imbalance` and `avoidable_by_pinning` become names that links can point at. */
const slug = (text: string): string =>
    text
        .toLowerCase()
        .replace(/[^a-z0-9]+/g, "-")
        .replace(/^-|-$/g, "");

/** Text with `code`, **strong** and *emphasis*. */
function inline(text: string): Child[] {
    return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/).map((part) => {
        if (part.startsWith("`")) return h("code", {}, part.slice(1, -1));
        if (part.startsWith("**")) return h("strong", {}, ...inline(part.slice(2, -2)));
        if (part.startsWith("*") && part.length > 2) return h("em", {}, ...inline(part.slice(1, -1)));
        return part;
    });
}

/** Names given out: the first definition of a term is the one that links lead to. */
const taken = new Set<string>();

function named(name: string | undefined): string | undefined {
    if (name === undefined || taken.has(name)) return undefined;
    taken.add(name);
    return name;
}

/** The term that a paragraph, a list item or a table row defines: its strong or code beginning. */
function term(text: string): string | undefined {
    const found = /^(?:\*\*([^*]+)\*\*|`([^`]+)`)/.exec(text);
    const name = found ? (found[1] ?? found[2])?.replaceAll("`", "") : undefined;
    return name ? named(`define-${slug(name)}`) : undefined;
}

function table(lines: string[]): HTMLElement {
    const cells = (line: string): string[] =>
        line
            .replace(/^\||\|$/g, "")
            .split("|")
            .map((cell) => cell.trim());
    const body = h("tbody");
    for (const line of lines.slice(2)) {
        const [first, ...rest] = cells(line);
        const row = h("tr", { id: term(first) }, h("th", { scope: "row" }, ...inline(first)), ...rest.map((cell) => h("td", {}, ...inline(cell))));
        // `samples`, `accesses`, `share` share a row: each leads to it.
        for (const other of first.match(/`[^`]+`/g)?.slice(1) ?? [])
            row.firstElementChild?.prepend(h("span", { id: named(`define-${slug(other)}`) }));
        body.append(row);
    }
    return h("table", {}, h("thead", {}, h("tr", {}, ...cells(lines[0]).map((cell) => h("th", { scope: "col" }, ...inline(cell))))), body);
}

/** Markdown of the kind that docs/metrics.md is written in: headings, paragraphs, lists of one level, tables. */
export function render(text: string): HTMLElement[] {
    const blocks: HTMLElement[] = [];
    for (const block of text.split(/\n{2,}/)) {
        let lines = block.split("\n").filter((line) => line !== "");
        while (lines.length > 0) {
            const first = lines[0];
            const heading = /^(#+) (.*)/.exec(first);
            if (heading) {
                const level = heading[1].length === 1 ? "h2" : "h3";
                blocks.push(h(level, { id: named(`define-${slug(heading[2])}`) }, ...inline(heading[2])));
                lines = lines.slice(1);
            } else if (first.startsWith("|")) {
                blocks.push(table(lines));
                lines = [];
            } else if (first.startsWith("* ")) {
                const items = lines
                    .join("\n")
                    .split(/\n(?=\* )/)
                    .map((item) => item.replace(/^\* /, "").replace(/\s*\n\s*/g, " "));
                blocks.push(h("ul", {}, ...items.map((item) => h("li", { id: term(item) }, ...inline(item)))));
                lines = [];
            } else {
                blocks.push(h("p", { id: term(first) }, ...inline(lines.join(" "))));
                lines = [];
            }
        }
    }
    return blocks;
}

let dialog: HTMLDialogElement | undefined;

/** Makes the dialog; to be called once. */
export function prepareDefinitions(text: string): HTMLDialogElement {
    const close = h("button", { type: "button", class: "close", "aria-label": "Close", click: () => dialog?.close() }, "×");
    const body = h("div", { class: "document", tabindex: 0 });
    dialog = h("dialog", { class: "definitions", "aria-label": "Definitions" }, close, body);
    append(body, render(text));
    dialog.addEventListener("click", (event) => {
        if (event.target === dialog) dialog.close();
    });
    return dialog;
}

/** Opens the definitions at a term. */
export function showDefinition(name: string): void {
    if (!dialog) return;
    for (const old of dialog.querySelectorAll(".looked-up")) old.classList.remove("looked-up");
    const wanted = `define-${CSS.escape(slug(name))}`;
    // `from_node` also finds `from_node[i]`.
    const place = dialog.querySelector(`#${wanted}`) ?? dialog.querySelector(`[id^="${wanted}-"]`);
    const target = place instanceof HTMLSpanElement ? place.closest("tr") : place;
    dialog.showModal();
    target?.classList.add("looked-up");
    target?.scrollIntoView({ block: "center" });
}

/** A small button that opens the definition of `name`. */
export function define(name: string, label = name): HTMLElement {
    const open = (event: Event): void => {
        event.stopPropagation();
        showDefinition(name);
    };
    return h(
        "button",
        { type: "button", class: "define", "data-term": name, title: `What is ${label}?`, "aria-label": `Definition of ${label}`, click: open },
        "?",
    );
}

/** Text with its definition behind it. */
export function defined(text: string, name: string): HTMLElement {
    const span = h("span", { class: "defined" });
    replace(span, text, define(name, text));
    return span;
}
