// Tables that sort, search and show more on demand; rows can be chosen with pointer and keyboard.

import { define } from "./definitions";
import { h, replace, type Child } from "./dom";
import type { Store } from "./store";

/** Made once: a comparison that makes its own takes many times as long. */
const COLLATOR = new Intl.Collator();

export interface Column<R> {
    name: string;
    title: string;
    /** Its definition's name in docs/metrics.md. */
    term?: string;
    /** What the table is sorted by; texts rise, numbers fall at the first click. */
    value: (row: R) => number | string;
    cell: (row: R) => Child | Child[];
    isText?: boolean;
    /** Left out on narrow screens. */
    isWide?: boolean;
    hint?: (row: R) => string;
}

export interface TableOptions<R> {
    name: string;
    caption: string;
    columns: readonly Column<R>[];
    sortedBy: string;
    rowsShown: number;
    text?: (row: R) => string;
    searchHint?: string;
    key: (row: R) => string;
    isChosen?: (row: R) => boolean;
    choose?: (row: R) => void;
    /** Whether this row can be chosen; all can unless told. */
    canChoose?: (row: R) => boolean;
    label?: (row: R) => string;
    /** A line beneath the table, about what is not in it. */
    note?: () => Child;
}

export class Table<R> {
    readonly element: HTMLElement;
    private rows: readonly R[] = [];
    private shown: number;
    private readonly body = h("tbody");
    private readonly header = h("tr");
    private readonly foot = h("div", { class: "table-foot" });
    private readonly search: HTMLInputElement | null;

    constructor(
        private readonly store: Store,
        private readonly options: TableOptions<R>,
    ) {
        this.shown = options.rowsShown;
        this.search = options.text
            ? h("input", {
                  type: "search",
                  placeholder: options.searchHint ?? "Search",
                  "aria-label": `${options.searchHint ?? "Search"} in ${options.caption}`,
                  value: this.query(),
                  input: () => this.searched(),
              })
            : null;
        const table = h("table", { class: "data" }, h("caption", { class: "unseen" }, options.caption), h("thead", {}, this.header), this.body);
        this.element = h(
            "div",
            { class: "table" },
            this.search,
            h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": options.caption }, table),
            this.foot,
        );
    }

    /** The search box, for the key that leads there. */
    focusSearch(): void {
        this.search?.focus();
    }

    private query(): string {
        return this.store.option(`${this.options.name}.find`, "");
    }

    private searched(): void {
        this.shown = this.options.rowsShown;
        this.store.setOption(`${this.options.name}.find`, this.search?.value ?? "", "");
    }

    private order(): { column: Column<R>; falls: boolean } {
        const { columns, sortedBy, name } = this.options;
        const [wanted, direction] = this.store.option(`${name}.sort`, sortedBy).split("~");
        const column =
            columns.find((candidate) => candidate.name === wanted) ?? columns.find((candidate) => candidate.name === sortedBy) ?? columns[0];
        const isReversed = direction === "up";
        return { column, falls: column.isText ? isReversed : !isReversed };
    }

    private sortBy(column: Column<R>): void {
        const now = this.store.option(`${this.options.name}.sort`, this.options.sortedBy);
        this.store.setOption(`${this.options.name}.sort`, now === column.name ? `${column.name}~up` : column.name, this.options.sortedBy);
    }

    render(rows: readonly R[]): void {
        this.rows = rows;
        const { column, falls } = this.order();
        this.drawHeader(column, falls);
        const query = this.query().toLowerCase();
        if (this.search && this.search.value.toLowerCase() !== query) this.search.value = query;
        const text = this.options.text;
        const found = query === "" || !text ? [...rows] : rows.filter((row) => text(row).toLowerCase().includes(query));
        const value = column.value;
        const compare = (x: number | string, y: number | string): number =>
            typeof x === "string" || typeof y === "string" ? COLLATOR.compare(String(x), String(y)) : x - y;
        // Each value once: some are sums over all of a row's accesses.
        const keyed = found.map((row) => ({ row, key: value(row) }));
        keyed.sort((a, b) => (falls ? compare(b.key, a.key) : compare(a.key, b.key)));
        keyed.forEach(({ row }, place) => (found[place] = row));
        const visible = found.slice(0, this.shown);
        // What was chosen stays in sight.
        const chosen = this.options.isChosen ? found.slice(this.shown).find(this.options.isChosen) : undefined;
        const focused = this.body.contains(document.activeElement) ? document.activeElement?.closest("tr")?.dataset["key"] : undefined;
        replace(this.body, ...visible.map((row) => this.row(row)), chosen !== undefined && this.row(chosen));
        if (focused !== undefined) this.body.querySelector<HTMLElement>(`tr[data-key="${CSS.escape(focused)}"] button`)?.focus();
        if (found.length === 0)
            this.body.append(h("tr", {}, h("td", { colspan: this.options.columns.length, class: "nothing" }, this.empty(query))));
        this.drawFoot(found.length);
    }

    private empty(query: string): string {
        if (query !== "") return "No row contains these words.";
        return this.store.isFiltered() ? "Nothing passes the filters." : "Nothing was recorded.";
    }

    private drawHeader(sorted: Column<R>, falls: boolean): void {
        const cells = this.options.columns.map((column) => {
            const isSorted = column === sorted;
            const arrow = isSorted ? (falls ? "▾" : "▴") : "";
            const button = h(
                "button",
                { type: "button", class: "sort", click: () => this.sortBy(column) },
                column.title,
                h("span", { class: "arrow", "aria-hidden": "true" }, arrow),
            );
            return h(
                "th",
                {
                    scope: "col",
                    class: `${column.isText ? "text" : "number"}${column.isWide ? " wide" : ""}`,
                    "aria-sort": isSorted ? (falls ? "descending" : "ascending") : null,
                },
                h("span", { class: "heading" }, button, column.term ? define(column.term, column.title) : null),
            );
        });
        if (this.header.contains(document.activeElement)) {
            // Redrawing would take the focus away from whoever sorts by keyboard.
            const place = [...this.header.querySelectorAll("button.sort")].indexOf(document.activeElement as HTMLButtonElement);
            replace(this.header, ...cells);
            this.header.querySelectorAll<HTMLButtonElement>("button.sort")[place]?.focus();
        } else replace(this.header, ...cells);
    }

    private row(row: R): HTMLElement {
        const { columns, isChosen, label } = this.options;
        const choose = (this.options.canChoose?.(row) ?? true) ? this.options.choose : undefined;
        const chosen = isChosen?.(row) ?? false;
        const cells = columns.map((column, index) => {
            const content = column.cell(row);
            const children = Array.isArray(content) ? content : [content];
            const attributes = { class: `${column.isText ? "text" : "number"}${column.isWide ? " wide" : ""}`, title: column.hint?.(row) };
            if (index > 0 || !choose) return h("td", attributes, ...children);
            const button = h(
                "button",
                {
                    type: "button",
                    class: "choose",
                    "aria-pressed": chosen ? "true" : "false",
                    "aria-label": label?.(row) ?? null,
                },
                ...children,
            );
            return h("th", { ...attributes, scope: "row" }, button);
        });
        return h(
            "tr",
            {
                class: `${chosen ? "chosen" : ""}${choose ? " choosable" : ""}`,
                "data-key": this.options.key(row),
                click: choose ? () => choose(row) : null,
            },
            ...cells,
        );
    }

    private drawFoot(found: number): void {
        const { rowsShown, note } = this.options;
        const more = found - this.shown;
        const show = (count: number): void => {
            this.shown = count;
            this.render(this.rows);
            this.foot.querySelector("button")?.focus({ preventScroll: true });
        };
        replace(
            this.foot,
            more > 0 &&
                h(
                    "button",
                    { type: "button", class: "quiet", click: () => show(this.shown + 50) },
                    `Show ${Math.min(more, 50)} more of ${more.toLocaleString("en")}`,
                ),
            this.shown > rowsShown && h("button", { type: "button", class: "quiet", click: () => show(rowsShown) }, "Show fewer"),
            h("span", { class: "faint" }, note?.()),
        );
    }
}
