// What every view gets, and what it must be able to do.

import type { Model } from "./model";
import type { Selection } from "./selection";
import type { Store } from "./store";

export interface Context {
    model: Model;
    store: Store;
}

export interface View {
    element: HTMLElement;
    /** Draws what passes the filters. */
    render(selection: Selection): void;
}
