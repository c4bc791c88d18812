// Program time: accesses in every slice, split as the reader likes; dragging over it (or the keyboard) chooses a range.

import { heights, tickLabels, type Tick } from "../axis";
import { defined } from "../definitions";
import { append, behind, clean, h, prepare, refresh, replace, svg } from "../dom";
import { count, percent, timeNs } from "../format";
import { LOCAL, REMOTE, WRITE } from "../model";
import * as palette from "../palette";
import { TIME, type Selection } from "../selection";
import type { Context, View } from "../view";
import { said, sentence } from "../words";

const HEIGHT = 118;
const AXIS = 18;
const MARKS = 16;
/** Width of the labels beside the canvas, which keeps all of its own for the time. */
const SIDE = 48;
/** Marks that are drawn: more would hide the bars. */
const MARKS_MAX = 400;

interface Part {
    name: string;
    colour: string;
}

interface Split {
    name: string;
    title: string;
    parts: (context: Context) => Part[];
    part: (context: Context) => (row: number) => number;
}

/** Where accesses go; unknown homes only where there are some. */
export const REACHES = (withUnknown = true): Part[] => [
    { name: "local", colour: palette.local() },
    { name: "remote", colour: palette.remote() },
    ...(withUnknown ? [{ name: "unknown home", colour: palette.unknown() }] : []),
];

export const DIRECTIONS = (): Part[] => [
    { name: "reads", colour: palette.reads() },
    { name: "writes", colour: palette.writes() },
];

const NODE_PARTS = ({ model }: Context): Part[] => [
    ...model.head.nodes.map((_, position) => ({ name: model.nodeName(position), colour: palette.node(position) })),
    { name: "unknown", colour: palette.unknown() },
];

/** Ways to split the accesses of a slice. */
export const SPLITS: readonly Split[] = [
    {
        name: "reach",
        title: "local and remote",
        parts: () => REACHES(),
        part:
            ({ model }) =>
            (row) =>
                model.rows.reach[row] === LOCAL ? 0 : model.rows.reach[row] === REMOTE ? 1 : 2,
    },
    {
        name: "rw",
        title: "reads and writes",
        parts: DIRECTIONS,
        part:
            ({ model }) =>
            (row) =>
                (model.rows.flags[row] & WRITE) !== 0 ? 1 : 0,
    },
    {
        name: "home",
        title: "by home node",
        parts: NODE_PARTS,
        part:
            ({ model }) =>
            (row) =>
                model.rows.home[row] < 0 ? model.head.nodes.length : model.rows.home[row],
    },
    {
        name: "from",
        title: "by accessing node",
        parts: NODE_PARTS,
        part:
            ({ model }) =>
            (row) =>
                model.rows.from[row] < 0 ? model.head.nodes.length : model.rows.from[row],
    },
];

/** Sums per slice (of `parts` values each), and per slice of everything where filters hide some of it. */
export function binned({ model }: Context, selection: Selection, but: number, parts: number, part: (row: number) => number): Float64Array {
    const sums = new Float64Array(model.bins * parts);
    const { weight } = model.rows;
    const { rowBin } = model;
    selection.each(but, (row) => (sums[rowBin[row] * parts + part(row)] += weight[row]));
    return sums;
}

/** A choice of how to split, as a select box that remembers itself. */
export function splitChoice(
    { store }: Context,
    option: string,
    names: readonly (readonly [string, string])[],
    otherwise: string,
    label: string,
): HTMLSelectElement {
    const choice = h("select", { "aria-label": label }, ...names.map(([name, title]) => h("option", { value: name }, title)));
    choice.addEventListener("change", () => store.setOption(option, choice.value, otherwise));
    const follow = (): void => {
        const wanted = store.option(option, otherwise);
        choice.value = names.some(([name]) => name === wanted) ? wanted : otherwise;
    };
    store.onChange(follow);
    follow();
    return choice;
}

/** What the colours mean. */
export function keys(parts: readonly Part[]): HTMLElement[] {
    return parts.map((part) => h("span", { class: "key" }, h("i", { style: { background: part.colour } }), part.name));
}

export function timeline(context: Context): View {
    const { store } = context;
    const canvas = h("canvas", { class: "timeline", role: "img" });
    const brush = h("div", { class: "brush", hidden: true });
    const cursor = h("div", { class: "cursor", hidden: true });
    const side = svg("svg", { class: "y-axis", width: SIDE, height: HEIGHT, "aria-hidden": "true" });
    const tip = h("div", { class: "tip", hidden: true });
    const stage = h(
        "div",
        {
            class: "stage",
            tabindex: 0,
            role: "group",
            "aria-label": "Program time. Arrow keys move, with shift they choose a range; escape clears it.",
        },
        canvas,
        brush,
        cursor,
        tip,
    );
    const choice = splitChoice(
        context,
        "time.split",
        SPLITS.map((split) => [split.name, split.title] as const),
        "reach",
        `How to split the ${said.many} over time`,
    );
    const legend = h("span", { class: "keys" });
    let rows: (string | number)[][] = [];
    let columns: string[] = [];
    const table = h("div");
    const element = h(
        "section",
        { class: "card time", id: "time-section", tabindex: -1, "aria-label": `${sentence(said.many)} over program time` },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Over program time", "Series")),
            choice,
            legend,
            h("span", { class: "faint hint" }, "Drag to choose a range"),
        ),
        h("div", { class: "with-axis" }, side, stage),
        table,
    );
    const drawer = new Drawer(context, canvas, side);
    new Brush(context, stage, brush, cursor, tip, () => drawer);
    let seen = "";
    return {
        element,
        render: (selection) => {
            const split = SPLITS.find((candidate) => candidate.name === store.option("time.split", "reach")) ?? SPLITS[0];
            drawer.draw(selection, split);
            const parts = split.parts(context).filter((_, part) => drawer.hasPart(part));
            const left = drawer.marksLeftOut();
            const slices = h("span", { class: "unit" }, `height: ${said.many} in a slice of ${timeNs(context.model.binNs)}`);
            replace(legend, ...keys(parts), slices, left > 0 && h("span", { class: "faint" }, `The last ${count(left)} marks are not drawn.`));
            rows = drawer.table();
            columns = ["From", ...split.parts(context).map((part) => part.name)];
            if (seen !== split.name) {
                seen = split.name;
                replace(
                    table,
                    behind(`${sentence(said.many)} over program time`, columns, () => rows),
                );
            } else refresh(table.firstElementChild as HTMLElement);
        },
    };
}

/** Bars over time; knows where times are on the canvas. */
class Drawer {
    private sums: Float64Array = new Float64Array();
    private parts: Part[] = [];

    constructor(
        private readonly context: Context,
        private readonly canvas: HTMLCanvasElement,
        private readonly side: SVGSVGElement,
    ) {}

    hasPart(part: number): boolean {
        const size = this.parts.length;
        for (let bin = 0; bin < this.context.model.bins; bin++) if (this.sums[bin * size + part] > 0) return true;
        return false;
    }

    draw(selection: Selection, split: Split): void {
        const { model, store } = this.context;
        this.parts = split.parts(this.context);
        const size = this.parts.length;
        this.sums = binned(this.context, selection, TIME, size, split.part(this.context));
        const width = this.canvas.clientWidth || 800;
        const context = prepare(this.canvas, width, HEIGHT);
        const hasMarks = model.head.marks.length > 0;
        const top = hasMarks ? MARKS : 4;
        const height = HEIGHT - AXIS - top;
        let most = 0;
        for (let bin = 0; bin < model.bins; bin++) {
            let sum = 0;
            for (let part = 0; part < size; part++) sum += this.sums[bin * size + part];
            most = Math.max(most, sum);
        }
        this.scale(context, width, heights(most, 3, top, top + height));
        const step = width / model.bins;
        for (let bin = 0; bin < model.bins; bin++) {
            let y = top + height;
            for (let part = 0; part < size; part++) {
                const tall = most > 0 ? (this.sums[bin * size + part] / most) * height : 0;
                if (tall <= 0) continue;
                context.fillStyle = this.parts[part].colour;
                context.fillRect(bin * step, y - tall, Math.max(step - (step > 4 ? 0.6 : 0), 0.6), tall);
                y -= tall;
            }
        }
        this.axis(context, width);
        if (hasMarks) this.marks(context, width, top + height);
        const range = store.filter.time;
        this.canvas.setAttribute(
            "aria-label",
            `${sentence(said.many)} over ${timeNs(model.head.duration_ns)} of program time, ${split.title}` +
                (range ? `; chosen: ${timeNs(range[0])} to ${timeNs(range[1])}` : ""),
        );
    }

    /** What heights stand for: values beside the canvas, and lines behind the bars. */
    private scale(context: CanvasRenderingContext2D, width: number, ticks: readonly Tick[]): void {
        replace(this.side, ...tickLabels(ticks, SIDE - 6));
        context.strokeStyle = palette.themed("--soft");
        context.beginPath();
        for (const { y } of ticks) {
            context.moveTo(0, Math.round(y) + 0.5);
            context.lineTo(width, Math.round(y) + 0.5);
        }
        context.stroke();
    }

    private axis(context: CanvasRenderingContext2D, width: number): void {
        const { model } = this.context;
        context.fillStyle = palette.themed("--faint");
        context.strokeStyle = palette.themed("--line");
        context.font = "11px system-ui, sans-serif";
        context.beginPath();
        context.moveTo(0, HEIGHT - AXIS + 0.5);
        context.lineTo(width, HEIGHT - AXIS + 0.5);
        context.stroke();
        const ticks = Math.max(2, Math.floor(width / 130));
        for (let tick = 0; tick <= ticks; tick++) {
            const at = model.head.start_ns + (model.head.duration_ns * tick) / ticks;
            context.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
            context.fillText(timeNs(Math.round(at)), (width * tick) / ticks, HEIGHT - 4);
        }
    }

    /** The program's own marks: phases, named where there is room. */
    private marks(context: CanvasRenderingContext2D, width: number, bottom: number): void {
        context.strokeStyle = palette.themed("--mark");
        context.fillStyle = palette.themed("--faint");
        context.textAlign = "left";
        context.setLineDash([2, 3]);
        let free = 0;
        for (const [time, text] of this.marksInside().slice(0, MARKS_MAX)) {
            const x = this.x(time, width);
            context.beginPath();
            context.moveTo(x + 0.5, 2);
            context.lineTo(x + 0.5, bottom);
            context.stroke();
            const words = clean(text).slice(0, 24);
            const wide = context.measureText(words).width;
            if (x >= free && x + wide + 6 <= width) {
                context.fillText(words, x + 4, 11);
                free = x + wide + 12;
            }
        }
        context.setLineDash([]);
    }

    private marksInside(): [time: number, text: string][] {
        const { model } = this.context;
        return model.head.marks.filter(([time]) => time >= model.head.start_ns && time <= model.end());
    }

    marksLeftOut(): number {
        return Math.max(this.marksInside().length - MARKS_MAX, 0);
    }

    x(time: number, width: number): number {
        const { head } = this.context.model;
        return ((time - head.start_ns) / head.duration_ns) * width;
    }

    time(x: number, width: number): number {
        const { model } = this.context;
        const bin = Math.round(Math.min(Math.max(x / width, 0), 1) * model.bins);
        return Math.min(model.head.start_ns + bin * model.binNs, model.end());
    }

    /** What a slice holds, in words. */
    words(bin: number): string[] {
        const size = this.parts.length;
        const values = this.parts.map((_, part) => this.sums[bin * size + part]);
        const all = values.reduce((a, b) => a + b, 0);
        const lines = this.parts.map((part, index) => [values[index], `${part.name} ${percent(all > 0 ? values[index] / all : 0)}`] as const);
        return [
            `${count(Math.round(all))} ${said.many}`,
            ...lines
                .filter(([value]) => value > 0)
                .sort((a, b) => b[0] - a[0])
                .slice(0, 6)
                .map(([, text]) => text),
        ];
    }

    table(): (string | number)[][] {
        const { model } = this.context;
        const size = this.parts.length;
        // A hundred lines are as many as anybody reads out.
        const group = Math.ceil(model.bins / 60);
        const rows: (string | number)[][] = [];
        for (let bin = 0; bin < model.bins; bin += group) {
            const values = this.parts.map((_, part) => {
                let sum = 0;
                for (let i = bin; i < Math.min(bin + group, model.bins); i++) sum += this.sums[i * size + part];
                return count(Math.round(sum));
            });
            rows.push([timeNs(model.head.start_ns + bin * model.binNs), ...values]);
        }
        return rows;
    }
}

/** Choosing a range, by pointer or keyboard. */
class Brush {
    private anchor = -1;
    private head = -1;

    constructor(
        private readonly context: Context,
        private readonly stage: HTMLElement,
        private readonly brush: HTMLElement,
        private readonly cursor: HTMLElement,
        private readonly tip: HTMLElement,
        private readonly drawer: () => Drawer,
    ) {
        stage.addEventListener("pointerdown", (event) => this.down(event));
        stage.addEventListener("pointermove", (event) => this.move(event));
        stage.addEventListener("pointerup", (event) => this.up(event));
        // The browser scrolls instead: nothing was chosen.
        stage.addEventListener("pointercancel", () => {
            this.anchor = -1;
            this.hide();
            this.show();
        });
        stage.addEventListener("pointerleave", () => this.hide());
        stage.addEventListener("keydown", (event) => this.key(event));
        context.store.onChange(() => this.show());
        new ResizeObserver(() => this.show()).observe(stage);
    }

    private at(event: PointerEvent): number {
        return event.clientX - this.stage.getBoundingClientRect().left;
    }

    private width(): number {
        return this.stage.clientWidth || 1;
    }

    private down(event: PointerEvent): void {
        if (event.button !== 0) return;
        this.anchor = this.at(event);
        this.stage.setPointerCapture(event.pointerId);
    }

    private move(event: PointerEvent): void {
        const { model } = this.context;
        const x = Math.min(Math.max(this.at(event), 0), this.width());
        this.cursor.hidden = false;
        this.cursor.style.left = `${x}px`;
        const bin = Math.min(Math.floor((x / this.width()) * model.bins), model.bins - 1);
        replace(this.tip, h("div", { class: "tip-title" }, timeNs(Math.round(model.head.start_ns + bin * model.binNs))));
        append(
            this.tip,
            this.drawer()
                .words(bin)
                .map((line) => h("div", {}, line)),
        );
        this.tip.hidden = false;
        this.tip.style.left = x > this.width() - 170 ? "" : `${x + 12}px`;
        this.tip.style.right = x > this.width() - 170 ? `${this.width() - x + 12}px` : "";
        if (this.anchor >= 0 && Math.abs(x - this.anchor) > 3) this.place(Math.min(x, this.anchor), Math.max(x, this.anchor));
    }

    private up(event: PointerEvent): void {
        if (this.anchor < 0) return;
        const [a, b] = [this.anchor, this.at(event)];
        this.anchor = -1;
        const [start, end] = [this.drawer().time(Math.min(a, b), this.width()), this.drawer().time(Math.max(a, b), this.width())];
        // A click without a drag lifts the range.
        this.context.store.set({ time: Math.abs(a - b) > 3 && end > start ? [start, end] : null });
    }

    private hide(): void {
        this.cursor.hidden = true;
        this.tip.hidden = true;
    }

    private key(event: KeyboardEvent): void {
        const { model, store } = this.context;
        if (event.key === "Escape" && store.filter.time) {
            // As its label says: the range, and not the filter that was set last.
            event.stopPropagation();
            store.set({ time: null });
            return;
        }
        const direction = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
        if (direction === 0) return;
        event.preventDefault();
        const step = direction * Math.max(1, Math.round(model.bins / 60));
        const limit = (bin: number): number => Math.min(Math.max(bin, 0), model.bins);
        const time = (bin: number): number => Math.min(model.head.start_ns + bin * model.binNs, model.end());
        if (this.head < 0 || !store.filter.time) [this.anchor, this.head] = [-1, store.filter.time ? model.bin(store.filter.time[1]) : 0];
        const from = store.filter.time ? Math.round((store.filter.time[0] - model.head.start_ns) / model.binNs) : this.head;
        const to = store.filter.time ? Math.round((store.filter.time[1] - model.head.start_ns) / model.binNs) : this.head;
        const [a, b] = event.shiftKey ? [from, limit(to + step)] : [limit(from + step), limit((to === from ? to + Math.abs(step) * 3 : to) + step)];
        this.head = b;
        if (b > a) store.set({ time: [time(a), time(b)] });
    }

    private show(): void {
        const range = this.context.store.filter.time;
        this.brush.hidden = !range;
        if (range) this.place(this.drawer().x(range[0], this.width()), this.drawer().x(range[1], this.width()));
    }

    private place(left: number, right: number): void {
        this.brush.hidden = false;
        this.brush.style.left = `${Math.max(left, 0)}px`;
        this.brush.style.width = `${Math.max(Math.min(right, this.width()) - Math.max(left, 0), 1)}px`;
    }
}
