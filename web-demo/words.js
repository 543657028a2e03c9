// What a person reads for the statuses and numbers of the wire.

const WORDS = {
  connecting: "Connecting…",
  running: "Running",
  waiting: "Waiting",
  stopping: "Stopping…",
  completed: "Completed",
  cancelled: "Cancelled",
  interrupted: "Interrupted",
  failed: "Failed",
  timeout: "Timed out",
  unavailable: "Not available",
  unknown: "Unknown",
  detached: "In the background",
};

/** What a run is called: its tool, or its tools. */
export function toolsText(names) {
  const tools = [...new Set(names)];
  return tools.length < 3 ? tools.join(" + ") : `${tools[0]} + ${tools.length - 1} more`;
}

export const statusText = (status) => WORDS[status] ?? String(status);

/** How far a call is, 0 to 100, or `null` where nobody knows. */
export function percentOf(progress, status) {
  if (typeof progress?.percent === "number") return progress.percent;
  if (progress?.total > 0) return Math.min(100, Math.max(0, (100 * progress.progress) / progress.total));
  return status === "completed" ? 100 : null;
}
