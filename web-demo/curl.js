// The same request as a shell command.

import { stopAddress, toolAddress } from "./api.js";

export function runCommand(tool, args) {
  return [
    `curl -N ${quote(toolAddress(tool))}`,
    "  -H 'Content-Type: application/json'",
    `  -d ${quote(JSON.stringify({ arguments: args }))}`,
  ].join(" \\\n");
}

export const stopCommand = () => `curl -X POST ${quote(stopAddress("RUN_ID"))}`;

/** One word of a POSIX shell: nothing is special between single quotes but the single quote. */
function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
