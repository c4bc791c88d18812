// How numbers are written for people: three digits that matter, the unit always there. The same as in the text report.

import { isExact, margin } from "./estimate";
import type { Estimate } from "./payload";

function scaled(value: number, base: number, units: readonly string[]): string {
    let unit = 0;
    while (Math.abs(value) >= base * 0.9995 && unit + 1 < units.length) {
        value /= base;
        unit++;
    }
    const size = Math.abs(value);
    const digits = unit === 0 && Number.isInteger(value) ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    return value.toFixed(digits) + units[unit];
}

export function count(value: number): string {
    return Number.isInteger(value) && Math.abs(value) < 10_000 ? String(value) : scaled(value, 1000, ["", " k", " M", " G", " T", " P"]);
}

export function bytes(value: number): string {
    return scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"]);
}

export function timeNs(value: number): string {
    if (value >= 60e9) {
        const seconds = Math.round(value / 1e9);
        return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
    }
    return scaled(value, 1000, [" ns", " µs", " ms", " s"]);
}

/** Whether a share from `least` on, which rounds to all, is not all. What sums of rows differ by in the last digits is nothing. */
function isNotQuiteAll(share: number, least: number): boolean {
    return share >= least && share < 1 - 1e-9;
}

/** `75.0 %`, `<0.1 %`, `>99.9 %`: what is not all does not read as all, nor something as nothing. `–` for NaN, which is unknown: as in all that follow. */
export function percent(share: number): string {
    if (Number.isNaN(share)) return "–";
    if (share > 0 && share < 0.0005) return "<0.1 %";
    return isNotQuiteAll(share, 0.9995) ? ">99.9 %" : `${(share * 100).toFixed(1)} %`;
}

/** `25 %`, with a decimal where it matters; `<0.1 %` for next to nothing, `>99 %` for not quite all: `short_percent` of crates/text. */
export function shortPercent(share: number): string {
    if (Number.isNaN(share)) return "–";
    const p = share * 100;
    if (p > 0 && p < 0.05) return "<0.1 %";
    if (isNotQuiteAll(share, 0.995)) return ">99 %";
    return p < 9.95 ? `${p.toFixed(1)} %` : `${p.toFixed(0)} %`;
}

/** Whole percentage for narrow columns: `·` for nothing, `<1` for next to nothing, `>99` for not quite all. */
export function bare(share: number): string {
    if (isNotQuiteAll(share, 0.995)) return ">99";
    return share <= 0 ? "·" : share < 0.005 ? "<1" : (share * 100).toFixed(0);
}

/** Half the interval in percentage points, never rounded down to nothing. */
export function marginPercent(estimate: Estimate): number {
    const half = margin(estimate) * 100;
    return half > 0 ? Math.max(half, 0.1) : 0;
}

/** `81.2 ± 0.7 %`, `58 ± 13 %` where the interval is wide (its half is rounded up), or `81.2 %` where it was counted. */
export function share(estimate: Estimate): string {
    if (Number.isNaN(estimate[0])) return "–";
    if (isExact(estimate)) return percent(estimate[0]);
    const half = marginPercent(estimate);
    const words = (value: number): string => value.toFixed(half < 9.95 ? 1 : 0);
    return `${words(estimate[0] * 100)} ± ${words(half < 9.95 ? half : Math.ceil(half))} %`;
}

/** `between 80.5 and 81.9 %` for tool tips. */
export function interval(estimate: Estimate): string {
    if (isExact(estimate)) return "counted, exact";
    return `95 % interval: ${(estimate[1] * 100).toFixed(1)} to ${(estimate[2] * 100).toFixed(1)} %`;
}

export function plural(number: number, one: string, many: string): string {
    return number === 1 ? `1 ${one}` : `${count(number)} ${many}`;
}

export function hex(high: number, low: number): string {
    return `0x${((BigInt(high) << 32n) | BigInt(low)).toString(16)}`;
}

/** The text without its middle, where it has more characters than `most`: names and command lines of any length come from programs. */
export function elide(text: string, most: number): string {
    if (text.length <= most) return text;
    const all = [...text];
    const half = Math.floor(most / 2);
    return all.length <= most ? text : `${all.slice(0, half).join("")} … ${all.slice(-half).join("")}`;
}

export function fileName(path: string): string {
    return path.slice(path.lastIndexOf("/") + 1);
}

/** ` ± 12 k` behind a count; nothing where it was counted. */
export function marginWords(estimate: Estimate): string {
    return isExact(estimate) ? "" : ` ± ${count(Math.max(1, Math.round(margin(estimate))))}`;
}
