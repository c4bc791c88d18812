// Building elements. Data only ever becomes text nodes and attribute values: nothing here parses markup.

export type Child = Node | string | number | null | undefined | false;
type Value = string | number | boolean | null | undefined | ((event: never) => void) | Record<string, string>;
export type Attributes = Record<string, Value>;

const SVG = "http://www.w3.org/2000/svg";

/** What changes the order or the look of the text around it: control characters, marks of direction, line breaks of every sort. */
const UNSAFE = /[\p{Cc}\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

/** The text with such characters as escapes, as in the text report: names come from programs, and must not turn the figures beside them around. */
export function clean(text: string): string {
    return text.replace(UNSAFE, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}

/** Attributes that people read or hear. Line breaks in them are the page's own. */
const cleanAttribute = (name: string, text: string): string =>
    name === "title" || name === "aria-label" ? text.split("\n").map(clean).join("\n") : text;

function fill(element: Element, attributes: Attributes, children: readonly Child[]): void {
    for (const [name, value] of Object.entries(attributes)) {
        if (value === null || value === undefined || value === false) continue;
        if (typeof value === "function") element.addEventListener(name, value as EventListener);
        else if (typeof value === "object") {
            // By way of the object model: the page's policy forbids style attributes.
            const style = (element as HTMLElement | SVGElement).style;
            for (const [property, text] of Object.entries(value)) style.setProperty(property, text);
        } else element.setAttribute(name, value === true ? "" : cleanAttribute(name, String(value)));
    }
    append(element, children);
}

export function append(element: Element, children: readonly Child[]): void {
    for (const child of children) {
        if (child === null || child === undefined || child === false) continue;
        element.append(child instanceof Node ? child : clean(String(child)));
    }
}

/** An HTML element. Functions among the attributes listen to the event of that name; `style` is an object. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
    const element = document.createElement(tag);
    fill(element, attributes, children);
    return element;
}

/** An SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): SVGElementTagNameMap[K] {
    const element = document.createElementNS(SVG, tag);
    fill(element, attributes, children);
    return element;
}

/** Puts these children in place of what is there. */
export function replace(element: Element, ...children: Child[]): void {
    element.replaceChildren();
    append(element, children);
}

/** A canvas of this size in CSS pixels, sharp on every screen; drawing coordinates are CSS pixels. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    if (!context) throw new Error("this browser cannot draw on a canvas");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
}

/** A table behind a picture: closed for eyes that see the picture, there for everybody else. */
export function behind(title: string, columns: readonly string[], rows: () => readonly (readonly (string | number)[])[]): HTMLElement {
    const body = h("tbody");
    const table = h(
        "table",
        { class: "plain" },
        h("caption", {}, title),
        h("thead", {}, h("tr", {}, ...columns.map((c) => h("th", { scope: "col" }, c)))),
        body,
    );
    const details = h("details", { class: "behind" }, h("summary", {}, "Figures as a table"), h("div", { class: "scroll" }, table));
    const refill = (): void => {
        if (details.open) replace(body, ...rows().map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell)))));
    };
    details.addEventListener("toggle", refill);
    details.addEventListener("refresh", refill);
    return details;
}

/** Tells a table behind a picture that its figures changed. */
export function refresh(details: HTMLElement): void {
    details.dispatchEvent(new Event("refresh"));
}
