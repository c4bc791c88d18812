// Colours. Scales change in lightness throughout, so that they read in grey; categories are Paul Tol's "muted" set, made for every kind of colour
// vision. Each has a variant for dark pages.

type Rgb = readonly [number, number, number];

let dark = false;

/** Whether the page is dark now. Asked for at every drawing, since asking for every cell would be slow. */
export function followTheme(): void {
    const before = dark;
    const chosen = document.documentElement.dataset["theme"];
    dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    if (dark !== before) resolved.clear();
}

const isDark = (): boolean => dark;

/** From nothing to everything. */
const LOAD: { light: readonly [number, Rgb][]; dark: readonly [number, Rgb][] } = {
    light: [
        [0, [250, 248, 240]],
        [0.15, [253, 222, 165]],
        [0.4, [245, 158, 84]],
        [0.7, [203, 62, 66]],
        [1, [92, 16, 62]],
    ],
    dark: [
        [0, [36, 39, 47]],
        [0.15, [78, 48, 96]],
        [0.4, [160, 58, 98]],
        [0.7, [236, 118, 74]],
        [1, [255, 232, 160]],
    ],
};

/** From all local to all remote. */
const DISTANCE: { light: readonly [number, Rgb][]; dark: readonly [number, Rgb][] } = {
    light: [
        [0, [74, 123, 183]],
        [0.5, [223, 210, 190]],
        [1, [232, 105, 36]],
    ],
    dark: [
        [0, [84, 140, 206]],
        [0.5, [120, 112, 108]],
        [1, [244, 129, 63]],
    ],
};

function along(stops: readonly (readonly [number, Rgb])[], share: number): Rgb {
    const at = Number.isFinite(share) ? Math.min(Math.max(share, 0), 1) : 0;
    let upper = stops.findIndex((stop) => stop[0] >= at);
    upper = Math.max(upper, 1);
    const [low, high] = [stops[upper - 1], stops[upper]];
    const part = (at - low[0]) / (high[0] - low[0]);
    const mix = (i: 0 | 1 | 2): number => Math.round(low[1][i] + (high[1][i] - low[1][i]) * part);
    return [mix(0), mix(1), mix(2)];
}

const css = (rgb: Rgb): string => `rgb(${rgb[0]}, ${rgb[1]}, ${rgb[2]})`;

export function load(share: number): string {
    return css(along(isDark() ? LOAD.dark : LOAD.light, share));
}

/** Text on `load(share)`. */
export function inkOnLoad(share: number): string {
    const [r, g, b] = along(isDark() ? LOAD.dark : LOAD.light, share);
    return inkOn(r, g, b);
}

/** From all local to all remote; NaN: no home is known. */
export function distance(share: number): string {
    return Number.isNaN(share) ? unknown() : css(along(isDark() ? DISTANCE.dark : DISTANCE.light, share));
}

export function inkOnDistance(share: number): string {
    // On grey, the ink of the ends of the scale.
    if (Number.isNaN(share)) return isDark() ? "#ffffff" : "#16191d";
    const [r, g, b] = along(isDark() ? DISTANCE.dark : DISTANCE.light, share);
    return inkOn(r, g, b);
}

/** Black or white, whichever contrasts more by relative luminance. */
function inkOn(r: number, g: number, b: number): string {
    const linear = (c: number): number => (c / 255) ** 2.2;
    const luminance = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) ? "#16191d" : "#ffffff";
}

/** A warm colour for a name, always the same, with its ink: tells neighbours apart and means nothing. */
export function warm(name: string): [background: string, ink: string] {
    let hash = 0;
    for (let i = 0; i < Math.min(name.length, 64); i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
    const [hue, lightness] = [16 + (hash % 27), (dark ? 56 : 66) + ((hash >>> 8) % 12)];
    return [`hsl(${hue} 72% ${lightness}%)`, "#16191d"];
}

const NODES_LIGHT = ["#332288", "#44aa99", "#ddcc77", "#cc6677", "#88ccee", "#117733", "#aa4499", "#999933", "#882255"];
const NODES_DARK = ["#8f83ee", "#4fc0ae", "#e2d283", "#e07b8b", "#8fd0f2", "#4fae6e", "#c66bb8", "#b5b54a", "#b34d80"];

/** A node's colour, by its position. Past nine, hues go around with two lightnesses: labels tell such nodes apart, not colour alone. */
export function node(position: number): string {
    if (position < 0) return unknown();
    const set = isDark() ? NODES_DARK : NODES_LIGHT;
    if (position < set.length) return set[position];
    const hue = (position * 137.508) % 360;
    const lightness = (isDark() ? 58 : 42) + (position % 2) * 14;
    return `hsl(${hue.toFixed(0)} 45% ${lightness}%)`;
}

export const unknown = (): string => (isDark() ? "#6d7480" : "#b5bac2");
export const local = (): string => distance(0);
export const remote = (): string => distance(1);
export const reads = (): string => (isDark() ? "#6fb3bd" : "#5b9aa3");
export const writes = (): string => (isDark() ? "#c77fc4" : "#8e3b8a");

const probe = document.createElement("span");
const resolved = new Map<string, string>();

/** A colour that the style sheet defines, as a canvas understands it. */
export function themed(name: string): string {
    let colour = resolved.get(name);
    if (colour === undefined) {
        if (!probe.isConnected) document.documentElement.append(probe);
        probe.hidden = true;
        probe.style.color = `var(${name})`;
        resolved.set(name, (colour = getComputedStyle(probe).color));
    }
    return colour;
}
