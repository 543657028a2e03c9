// The fields of a tool's JSON Schema: which control each needs, and what a person's input means. No DOM.

/** Longer texts get a box of several lines, and are left out of a request while they are what the schema says anyway. */
const LONG_TEXT = 200;

/** `[{name, title, kind, required, nullable, fallback, description, ...limits}]`, in the schema's order. */
export function fieldsOf(root) {
  const required = new Set(root.required ?? []);
  return Object.entries(root.properties ?? {}).map(([name, raw]) => {
    const { schema, nullable } = unwrap(raw, root);
    const field = {
      name,
      title: raw.title ?? schema.title ?? name,
      nullable,
      required: required.has(name),
      fallback: raw.default,
      description: raw.description ?? schema.description ?? "",
      minimum: schema.minimum ?? schema.exclusiveMinimum,
      maximum: schema.maximum ?? schema.exclusiveMaximum,
      maxLength: schema.maxLength,
      ...kindOf(schema, nullable, root),
    };
    return { ...field, hint: hintOf(field, schema) };
  });
}

/** What the control shows for a value: text, or for a checkbox and a choice the value itself. */
export function display(field, value) {
  if (field.kind === "boolean") return Boolean(value);
  if (field.kind === "choice") return Math.max(0, field.choices.findIndex((choice) => same(choice, value)));
  if (value === undefined || value === null) return "";
  if (field.kind === "lines") return Array.isArray(value) ? value.join("\n") : "";
  if (field.kind === "json") return JSON.stringify(value, null, 2);
  return String(value);
}

/** The value of a control's input; `undefined` leaves the argument out. Throws an `Error` for the person. */
export function parse(field, input) {
  if (field.kind === "boolean") return input;
  if (field.kind === "choice") return field.choices[input];
  if (input.trim() === "") return parseEmpty(field);
  return parsers[field.kind](field, input);
}

/** The arguments to send: long texts that are the schema's own default are left out. */
export function argumentsOf(fields, values) {
  const isDefault = (field) =>
    typeof field.fallback === "string" && field.fallback.length > LONG_TEXT && values[field.name] === field.fallback;
  return Object.fromEntries(
    fields.filter((field) => values[field.name] !== undefined && !isDefault(field)).map((field) => [field.name, values[field.name]]),
  );
}

const parsers = {
  text: inLength,
  textarea: inLength,
  integer: (field, input) => inRange(field, wholeNumber(input)),
  number: (field, input) => inRange(field, anyNumber(input)),
  lines(field, input) {
    const lines = input.split(/\r?\n/).filter((line) => line.trim() !== "");
    return field.itemKind === "string" ? lines : lines.map(field.itemKind === "integer" ? wholeNumber : anyNumber);
  },
  json(_field, input) {
    try {
      return JSON.parse(input);
    } catch (error) {
      throw new Error(`This is not JSON: ${error.message}`, { cause: error });
    }
  },
};

function parseEmpty(field) {
  if (field.required && !field.nullable) throw new Error("This needs a value.");
  if (field.fallback === undefined) return field.required ? null : undefined;
  if (field.fallback === "") return undefined;
  if (field.nullable) return null;
  if (field.kind === "lines") return [];
  // An emptied text is a text; an emptied number is the tool's own default.
  return field.kind === "text" || field.kind === "textarea" ? "" : undefined;
}

function wholeNumber(input) {
  const value = anyNumber(input);
  if (!Number.isInteger(value)) throw new Error(`${input.trim()} is not a whole number.`);
  if (!Number.isSafeInteger(value)) throw new Error(`${input.trim()} is too large to be sent exactly.`);
  return value;
}

function anyNumber(input) {
  const value = Number(input);
  if (!Number.isFinite(value)) throw new Error(`${input.trim()} is not a number.`);
  return value;
}

function inRange(field, value) {
  if (value < field.minimum) throw new Error(`This must be at least ${field.minimum}.`);
  if (value > field.maximum) throw new Error(`This must be at most ${field.maximum}.`);
  return value;
}

function inLength(field, input) {
  // The schema counts code points. Said rather than enforced by the control, which would cut a pasted text silently.
  const length = input.length > field.maxLength ? [...input].length : 0;
  if (length > field.maxLength) throw new Error(`This has ${length} characters, the limit is ${field.maxLength}.`);
  return input;
}

/** Follows `$ref` and takes `X | None` apart. */
function unwrap(raw, root) {
  const schema = resolve(raw, root);
  const options = schema.anyOf ?? schema.oneOf;
  if (!options) return { schema, nullable: false };
  const others = options.map((option) => resolve(option, root)).filter((option) => option.type !== "null");
  const nullable = others.length < options.length;
  return others.length === 1 ? { schema: { ...schema, ...others[0] }, nullable } : { schema, nullable };
}

function resolve(schema, root) {
  if (typeof schema.$ref !== "string" || !schema.$ref.startsWith("#/")) return schema;
  const path = schema.$ref.slice(2).split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  const target = path.reduce((node, part) => node?.[part], root) ?? {};
  return { ...target, ...schema, $ref: undefined };
}

function kindOf(schema, nullable, root) {
  const choices = schema.enum ?? ("const" in schema ? [schema.const] : null);
  if (choices) return { kind: "choice", choices: nullable ? [null, ...choices] : choices };
  if (schema.type === "boolean") return nullable ? { kind: "choice", choices: [null, true, false] } : { kind: "boolean" };
  if (schema.type === "integer" || schema.type === "number") return { kind: schema.type };
  if (schema.type === "string") return { kind: isLong(schema) ? "textarea" : "text" };
  const itemKind = schema.type === "array" && schema.items ? resolve(schema.items, root).type : null;
  if (["string", "integer", "number"].includes(itemKind)) return { kind: "lines", itemKind };
  return { kind: "json" };
}

function isLong(schema) {
  if (schema.format === "textarea" || schema["x-multiline"]) return true;
  if (schema.maxLength !== undefined) return schema.maxLength > LONG_TEXT;
  return !schema.format && /\btext\b/i.test(schema.description ?? "");
}

function hintOf(field, schema) {
  const low = schema.minimum ?? (schema.exclusiveMinimum !== undefined ? `over ${schema.exclusiveMinimum}` : undefined);
  const high = schema.maximum ?? (schema.exclusiveMaximum !== undefined ? `under ${schema.exclusiveMaximum}` : undefined);
  const notes = [];
  if (low !== undefined && high !== undefined) notes.push(`${low} to ${high}`);
  else if (low !== undefined) notes.push(`from ${low}`);
  else if (high !== undefined) notes.push(`up to ${high}`);
  if (field.kind === "lines") notes.push("one a line");
  if (field.kind === "json") notes.push("JSON");
  if (field.nullable && field.kind !== "choice") notes.push("may stay empty");
  const note = notes.length ? `(${notes.join(", ")})` : "";
  return [field.description, note].filter(Boolean).join(" ");
}

const same = (left, right) => JSON.stringify(left) === JSON.stringify(right);
