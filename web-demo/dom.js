// DOM helpers. Everything that comes from outside goes through textContent: data is never parsed as HTML.

export const byId = (id) => document.getElementById(id);

/** A new element: properties that the element has are set, all others become attributes; children may be text. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Writes only what changes, so that a frame without news costs no layout and live regions stay quiet. */
export function setText(node, text) {
  const next = String(text);
  if (node.textContent !== next) node.textContent = next;
}

export function setData(node, name, value) {
  const next = String(value);
  if (node.dataset[name] !== next) node.dataset[name] = next;
}

export function showProblem(node, message) {
  setText(node, message ?? "");
  node.hidden = !message;
}
