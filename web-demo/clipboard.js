// Copying: at once where the browser lets us, else the text is selected and Ctrl-C does the rest.

import { setText } from "./dom.js";

const SAID_MS = 1500;

/** `source`: an input, or an element whose text is meant. */
export async function copyFrom(source, button) {
  if (source.select) source.select();
  else getSelection().selectAllChildren(source);
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), SAID_MS);
  } catch {
    // No clipboard on plain http beyond loopback, or the person does not want it.
  }
}
