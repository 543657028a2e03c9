// The live log of custom events. Ten thousand a second must not freeze the tab: one pass a frame, 500 rows at most.

import { element, setData, setText } from "./dom.js";
import { LOG_ROWS } from "./state.js";

/** A row shows a line; the whole value is there on a click, up to this length. */
const SHORT = 300;
const LONG = 20_000;

/** In a flood the rows change unread: then the list is redrawn this often, so that the frames between stay short. */
const FLOOD_ROWS = 100;
const FLOOD_MS = 200;

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hourCycle: "h23",
});

export class LogView {
  constructor(list, counter, note) {
    this.list = list;
    this.counter = counter;
    this.note = note;
    this.lastId = 0;
    this.drawnAt = 0;
    this.follows = true;
    this.values = new WeakMap();
    // Follow the newest row until the person scrolls up to read, and again once they are back at the end.
    list.addEventListener("scroll", () => {
      this.follows = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
    });
    list.addEventListener("click", (event) => this.#toggle(event.target.closest("li")));
  }

  clear() {
    this.lastId = 0;
    this.follows = true;
    this.list.replaceChildren();
  }

  /** Draws what is new, and says whether something was left for a later frame. */
  render(state, now) {
    setText(this.counter, state.logged);
    const shown = state.logged > LOG_ROWS ? `, the last ${LOG_ROWS} shown` : "";
    setText(this.note, (state.logged === 1 ? " custom event" : " custom events") + shown);
    const fresh = this.#fresh(state.log);
    if (fresh.length === 0) return false;
    if (fresh.length > FLOOD_ROWS && now - this.drawnAt < FLOOD_MS) return true;
    this.drawnAt = now;
    this.lastId = fresh.at(-1).id;
    const surplus = this.list.childElementCount + fresh.length - LOG_ROWS;
    for (let count = 0; count < surplus; count += 1) this.list.firstElementChild.remove();
    this.list.append(...fresh.map((entry) => this.#row(entry)));
    if (this.follows) this.list.scrollTop = this.list.scrollHeight;
    return false;
  }

  #fresh(log) {
    let start = log.length;
    while (start > 0 && log[start - 1].id > this.lastId && log.length - start < LOG_ROWS) start -= 1;
    return log.slice(start);
  }

  #row({ id, time, name, value }) {
    const row = element(
      "li",
      {},
      element("time", {}, time ? clock.format(time) : ""),
      element("span", { className: "event-name" }, name),
      element("span", { className: "event-value" }, short(value)),
    );
    setData(row, "id", id);
    setData(row, "name", name);
    this.values.set(row, value);
    return row;
  }

  #toggle(row) {
    // A click that ends a selection of text is not a wish to open the row.
    if (!row || String(getSelection())) return;
    const open = row.classList.toggle("open");
    const value = this.values.get(row);
    setText(row.lastElementChild, open ? JSON.stringify(withoutCall(value), null, 2).slice(0, LONG) : short(value));
  }
}

const short = (value) => {
  const text = JSON.stringify(withoutCall(value));
  return text.length > SHORT ? `${text.slice(0, SHORT)}…` : text;
};

/** Every value of a run carries its call's id: in a row it is noise. */
function withoutCall({ toolCallId, ...value }) {
  return value;
}
