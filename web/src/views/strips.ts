// Threads over time as strips of cells: one line per thread, one cell per slice, as strong as it is busy.

import { behind, clean, h, prepare, refresh } from "../dom";
import { count, percent, timeNs } from "../format";
import type { Model } from "../model";
import * as palette from "../palette";
import { said, sentence } from "../words";

const LINE = 15;
const LABEL = 120;
/** More lines than this are not drawn; the table behind has them. */
const LINES_MAX = 128;

export interface Strip {
    label: string;
    values: Float64Array;
    colour: (bin: number) => string;
}

/** Draws strips; returns the element with a table behind. `redraw` replaces what it shows. */
export class Strips {
    readonly element: HTMLElement;
    private strips: Strip[] = [];
    /** Those that are drawn. */
    private shown: Strip[] = [];
    private readonly canvas = h("canvas", { class: "strips", role: "img" });
    private readonly table: HTMLElement;
    private readonly note = h("p", { class: "faint" });

    constructor(
        private readonly model: Model,
        private readonly title: string,
    ) {
        this.table = behind(title, ["Thread", sentence(said.many), "First slice", "Last slice"], () => this.rows());
        this.element = h("div", { class: "strips-box" }, this.canvas, this.note, this.table);
        this.canvas.addEventListener("pointermove", (event) => this.hint(event));
        new ResizeObserver(() => this.draw()).observe(this.canvas);
    }

    redraw(strips: Strip[]): void {
        this.strips = strips;
        this.shown = busiest(strips);
        this.draw();
        refresh(this.table);
    }

    private draw(): void {
        const { shown } = this;
        const width = this.canvas.clientWidth;
        if (width === 0) return;
        const line = shown.length > 40 ? 9 : LINE;
        const context = prepare(this.canvas, width, Math.max(shown.length, 1) * line + 2);
        const left = width < 560 ? 70 : LABEL;
        const step = (width - left) / this.model.bins;
        const most = Math.max(0, ...shown.map((strip) => strip.values.reduce((a, b) => Math.max(a, b), 0)));
        context.font = `${Math.min(line - 2, 11)}px system-ui, sans-serif`;
        shown.forEach((strip, index) => {
            context.globalAlpha = 1;
            context.fillStyle = palette.themed("--faint");
            context.fillText(clean(strip.label).slice(0, left < 100 ? 10 : 18), 0, index * line + line - 4, left - 8);
            context.fillStyle = palette.themed("--well");
            context.fillRect(left, index * line + 1, width - left, line - 2);
            for (let bin = 0; bin < this.model.bins; bin++) {
                const value = strip.values[bin];
                if (value <= 0) continue;
                context.globalAlpha = 0.25 + 0.75 * Math.sqrt(value / most);
                context.fillStyle = strip.colour(bin);
                context.fillRect(left + bin * step, index * line + 1, Math.max(step, 1), line - 2);
            }
        });
        context.globalAlpha = 1;
        this.canvas.setAttribute("aria-label", `${this.title}: ${this.strips.length} threads`);
        const note = `The ${LINES_MAX} threads with most ${said.many} of ${count(this.strips.length)} are drawn; the table has all.`;
        this.note.textContent = this.strips.length > LINES_MAX ? note : "";
        this.note.hidden = this.note.textContent === "";
    }

    private hint(event: PointerEvent): void {
        const box = this.canvas.getBoundingClientRect();
        const strip = this.shown[Math.floor(((event.clientY - box.top) / box.height) * this.shown.length)];
        const left = box.width < 560 ? 70 : LABEL;
        const bin = Math.floor(((event.clientX - box.left - left) / (box.width - left)) * this.model.bins);
        if (!strip || bin < 0) return;
        const all = strip.values.reduce((a, b) => a + b, 0);
        this.canvas.title =
            `${clean(strip.label)} at ${timeNs(this.model.head.start_ns + bin * this.model.binNs)}: ` +
            `${count(Math.round(strip.values[bin] ?? 0))} ${said.many} (${percent((strip.values[bin] ?? 0) / all)} of its own here)`;
    }

    private rows(): (string | number)[][] {
        const { model } = this;
        const at = (bin: number): string => (bin < 0 ? "–" : timeNs(model.head.start_ns + bin * model.binNs));
        return this.strips.map((strip) => {
            const all = strip.values.reduce((a, b) => a + b, 0);
            const first = strip.values.findIndex((value) => value > 0);
            let last = model.bins - 1;
            while (last >= 0 && strip.values[last] <= 0) last--;
            return [strip.label, count(Math.round(all)), at(first), at(last)];
        });
    }
}

const sum = (values: Float64Array): number => values.reduce((a, b) => a + b, 0);

/** As many as are drawn: those with most accesses, in the order that they have. */
function busiest(strips: readonly Strip[]): Strip[] {
    if (strips.length <= LINES_MAX) return [...strips];
    const sums = strips.map((strip) => sum(strip.values));
    const order = [...strips.keys()].sort((a, b) => sums[b] - sums[a] || a - b).slice(0, LINES_MAX);
    return order.sort((a, b) => a - b).map((index) => strips[index]);
}
