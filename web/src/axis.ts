// The axis beside bars: what their heights stand for.

import { svg } from "./dom";
import { count } from "./format";

/** A value on an axis, and how far down the picture it is, in pixels. */
export interface Tick {
    value: number;
    y: number;
}

/** Round values from 0 to `most`, about `number` of them, 1, 2 or 5 times a power of ten apart as in the report's pictures; none where `most` is 0. */
export function heights(most: number, number: number, top: number, bottom: number): Tick[] {
    if (!(most > 0) || !Number.isFinite(most)) return [];
    const rough = most / number;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = ([1, 2, 5].find((factor) => factor * power >= rough * 0.999) ?? 10) * power;
    return Array.from({ length: Math.floor((most / step) * 1.000001) + 1 }, (_, index) => {
        const value = index * step;
        return { value, y: bottom - (value / most) * (bottom - top) };
    });
}

/** The ticks' values, which end at `right`. */
export function tickLabels(ticks: readonly Tick[], right: number): SVGTextElement[] {
    return ticks.map(({ value, y }) => svg("text", { x: right, y: y + 4, class: "tick" }, count(value)));
}
