// The words a person reads for the statuses of the wire.

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

export const statusText = (status) => WORDS[status] ?? String(status);
