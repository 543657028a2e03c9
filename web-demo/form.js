// The form of a tool, or of a question, made from a JSON Schema.

import { element, setText } from "./dom.js";
import { argumentsOf, display, fieldsOf, parse } from "./fields.js";

export class Form {
  /**
   * `prefix`: of the ids, since a page has many forms; `titles`: whether a field is called by its title and not by its
   * name; `empty`: what is said in the place of no fields at all.
   */
  constructor(schema, { prefix = "field", titles = false, empty = "This tool takes no arguments." } = {}) {
    this.rows = fieldsOf(schema).map((field) => createRow(field, prefix, titles ? field.title : field.name));
    this.touched = false;
    this.element = element("div", { className: "fields" }, ...this.rows.map((row) => row.element));
    this.element.addEventListener("input", () => (this.touched = true));
    if (this.rows.length === 0 && empty) this.element.append(element("p", { className: "hint" }, empty));
    this.reset();
  }

  reset() {
    this.touched = false;
    this.clearErrors();
    for (const { field, write } of this.rows) write(display(field, field.fallback));
  }

  /** Shows the arguments of an earlier call; what it left out gets the default. */
  fill(values) {
    this.reset();
    for (const { field, write } of this.rows) {
      if (Object.hasOwn(values, field.name)) write(display(field, values[field.name]));
    }
  }

  /** `{values, errors}`: the arguments, and a message by name for each field that makes no sense. */
  read() {
    const values = {};
    const errors = {};
    for (const { field, read } of this.rows) {
      try {
        values[field.name] = parse(field, read());
      } catch (error) {
        errors[field.name] = error.message;
      }
    }
    return { values: argumentsOf(this.rows.map((row) => row.field), values), errors };
  }

  clearErrors() {
    for (const row of this.rows) showError(row, "");
  }

  /** Shows messages by field name and returns those that belong to no field; the first field gets the focus. */
  showErrors(errors) {
    const left = new Map(Object.entries(errors));
    const wrong = this.rows.filter((row) => left.has(row.field.name));
    for (const row of wrong) {
      showError(row, left.get(row.field.name));
      left.delete(row.field.name);
    }
    wrong[0]?.control.focus();
    return [...left].map(([name, message]) => `${name}: ${message}`);
  }
}

/** The field errors of a refusal (`[{field, message}]`), by the name of the top field. */
export function errorsByField(details) {
  const errors = {};
  for (const { field = "", message = "" } of Array.isArray(details) ? details : []) {
    const [name, ...inner] = String(field).split(/[.[\]]+/).filter(Boolean);
    const text = inner.length ? `${inner.join(".")}: ${message}` : message;
    errors[name ?? ""] = errors[name ?? ""] ? `${errors[name ?? ""]}; ${text}` : text;
  }
  return errors;
}

function createRow(field, prefix, name) {
  const id = `${prefix}-${field.name}`;
  const hint = element("p", { className: "hint", id: `${id}-hint`, hidden: !field.hint }, field.hint);
  const error = element("p", { className: "field-error", id: `${id}-error`, "data-testid": `error-${field.name}`, hidden: true });
  const control = createControl(field);
  control.id = id;
  control.name = field.name;
  control.setAttribute("aria-describedby", `${hint.id} ${error.id}`);
  const needed = field.required && field.kind !== "boolean"; // a box always says something
  if (needed) control.setAttribute("aria-required", "true");
  const label = element("label", { htmlFor: id }, name);
  if (needed) label.append(element("span", { className: "needed", title: "needs a value" }, " *"));
  const parts = field.kind === "boolean" ? [element("div", { className: "check" }, control, label)] : [label, control];
  return { field, control, error, element: element("div", { className: "field" }, ...parts, hint, error), ...access(field, control) };
}

function createControl(field) {
  switch (field.kind) {
    case "boolean":
      return element("input", { type: "checkbox" });
    case "choice":
      return element("select", {}, ...field.choices.map((choice, index) => element("option", { value: index }, choiceText(choice))));
    case "integer":
    case "number":
      return element("input", {
        type: "number",
        step: field.kind === "integer" ? 1 : "any",
        min: field.minimum,
        max: field.maximum,
      });
    case "text":
      return element("input", { type: "text", autocomplete: "off", spellcheck: false });
    default:
      return element("textarea", { rows: field.kind === "textarea" ? 7 : 4, spellcheck: false });
  }
}

const choiceText = (choice) => (choice === null ? "not set" : typeof choice === "string" ? choice : JSON.stringify(choice));

function access(field, control) {
  if (field.kind === "boolean") return { read: () => control.checked, write: (value) => (control.checked = value) };
  if (field.kind === "choice") return { read: () => Number(control.value), write: (value) => (control.value = value) };
  // A number field hides text that is no number; it must not pass as an empty one.
  return { read: () => (control.validity.badInput ? "This" : control.value), write: (value) => (control.value = value) };
}

function showError(row, message) {
  setText(row.error, message);
  row.error.hidden = !message;
  if (message) row.control.setAttribute("aria-invalid", "true");
  else row.control.removeAttribute("aria-invalid");
}
