// The page: connects the tools, the form, the run that is shown and the address.

import { ApiError, listRuns, listTools, startRun } from "./api.js";
import { runCommand, stopCommand } from "./curl.js";
import { byId, setText, showProblem } from "./dom.js";
import { errorsByField, Form } from "./form.js";
import { newId, rememberedRuns, rememberRun, show, shown, threadId } from "./history.js";
import { renderRuns, renderTools } from "./picks.js";
import { Run } from "./run.js";
import { RunView } from "./runview.js";
import { isOver } from "./state.js";
import { statusText } from "./words.js";

const CLOCK_MS = 250;
const LIST_MS = 3000;

const view = new RunView();
let tools = [];
let tool = null;
let form = null;
let run = null;
let records = [];
let frame = 0;
let lastStatus = "";

// --- what is shown -------------------------------------------------------------------------------------------------

/** At most one pass over the DOM a frame, however many events arrive. */
function changed() {
  frame ||= requestAnimationFrame((now) => {
    frame = 0;
    if (view.render(now)) changed();
    adoptArguments();
    if (run && run.state.status !== lastStatus) {
      lastStatus = run.state.status;
      renderRecent();
    }
  });
}

function renderRecent() {
  const known = new Map(rememberedRuns().map((item) => [item.runId, item]));
  for (const record of records) {
    known.set(record.runId, {
      runId: record.runId,
      tool: record.toolCalls?.[0]?.toolName ?? known.get(record.runId)?.tool ?? record.agent,
      status: record.status,
      startedAt: Date.parse(record.createdAt),
    });
  }
  const current = run && known.get(run.runId);
  // The stream knows it first.
  if (current && run.state.status !== "connecting") current.status = run.state.status;
  const runs = [...known.values()].sort((left, right) => right.startedAt - left.startedAt).slice(0, 20);
  renderRuns(byId("recent"), byId("recent-title"), runs, run?.runId, (item) => showRun(item.runId, item.tool));
}

function renderTitle() {
  const call = run && [...run.state.calls.values()][0];
  const percent = call?.progress?.percent;
  const state = run && !run.over && typeof percent === "number" ? `${Math.floor(percent)} %` : run && statusText(run.state.status);
  setText(document.querySelector("title"), call ? `${state} · ${call.name} · AG-UI gateway` : "AG-UI gateway");
}

function renderCurl() {
  if (!tool) return;
  const { values } = form.read();
  setText(byId("curl-command"), runCommand(tool.name, values));
  setText(byId("curl-stop"), stopCommand());
}

// --- what a person does --------------------------------------------------------------------------------------------

function chooseTool(next) {
  tool = next;
  form = new Form(tool.parameters ?? {});
  setText(byId("tool-name"), tool.name);
  setText(byId("tool-description"), tool.description);
  showProblem(byId("form-problem"), null);
  byId("fields").replaceChildren(form.element);
  byId("tool-panel").hidden = false;
  renderTools(byId("tools"), tools, tool.name, chooseTool);
  renderCurl();
  show({ run: run?.runId, tool: tool.name });
}

async function start(event) {
  event.preventDefault();
  form.clearErrors();
  showProblem(byId("form-problem"), null);
  const { values, errors } = form.read();
  if (Object.keys(errors).length > 0) return form.showErrors(errors);
  const body = { arguments: values, threadId: threadId(), runId: newId(), toolCallId: newId() };
  const button = byId("run-button");
  button.disabled = true;
  try {
    await startRun(tool.name, body);
  } catch (error) {
    return refused(error);
  } finally {
    button.disabled = false;
  }
  rememberRun(body.runId, tool.name);
  form.touched = true; // these are the values of this run already
  showRun(body.runId, tool.name);
  byId("run-panel").scrollIntoView({ block: "nearest" }); // on a phone it is below the form
  refreshRuns();
}

function refused(error) {
  if (!(error instanceof ApiError)) throw error;
  const elsewhere = form.showErrors(errorsByField(error.details));
  const allShown = error.code === "invalid_arguments" && Array.isArray(error.details) && elsewhere.length === 0;
  showProblem(byId("form-problem"), allShown ? "Some values do not fit, see above." : error.message);
}

function showRun(runId, toolName) {
  const named = tools.find((item) => item.name === toolName);
  if (named && named !== tool) chooseTool(named);
  run?.close();
  run = new Run(runId, changed);
  lastStatus = "";
  view.show(run);
  show({ run: runId, tool: tool?.name });
  run.open();
  changed();
  renderRecent();
}

/** A run that was found again brings its arguments with it, unless the person has begun to type. */
function adoptArguments() {
  const call = run && [...run.state.calls.values()][0];
  if (!call?.argsComplete || run.adopted || form?.touched) return;
  run.adopted = true;
  if (call.name !== tool?.name) {
    const named = tools.find((item) => item.name === call.name);
    if (!named) return;
    chooseTool(named);
  }
  try {
    form.fill(JSON.parse(call.args || "{}"));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  renderCurl();
}

async function copyCommand() {
  const pre = byId("curl-command");
  getSelection().selectAllChildren(pre);
  try {
    await navigator.clipboard.writeText(pre.textContent);
    setText(byId("curl-copy"), "Copied");
    setTimeout(() => setText(byId("curl-copy"), "Copy"), 1500);
  } catch {
    // No clipboard on plain http beyond loopback: the text is selected, Ctrl-C does the rest.
  }
}

// --- what happens by itself ----------------------------------------------------------------------------------------

async function refreshRuns() {
  records = await listRuns();
  renderRecent();
}

async function poll() {
  const active = records.some((record) => !isOver(record.status) && record.runId !== run?.runId);
  if (active && document.visibilityState === "visible") await refreshRuns();
}

function followAddress() {
  const wanted = shown();
  const named = tools.find((item) => item.name === wanted.tool);
  if (named && named !== tool) chooseTool(named);
  if (wanted.run && wanted.run !== run?.runId) showRun(wanted.run, wanted.tool);
}

async function begin() {
  try {
    tools = await listTools();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return showProblem(byId("tools-problem"), error.message);
  }
  if (tools.length === 0) showProblem(byId("tools-problem"), "This gateway has no tools.");
  renderTools(byId("tools"), tools, null, chooseTool);
  const wanted = shown();
  const last = wanted.run ? null : rememberedRuns()[0];
  const first = tools.find((item) => item.name === (wanted.tool ?? last?.tool)) ?? tools[0];
  if (first) chooseTool(first);
  if (wanted.run ?? last) showRun(wanted.run ?? last.runId, wanted.tool ?? last?.tool);
  await refreshRuns();
}

byId("form").addEventListener("submit", start);
byId("form").addEventListener("input", renderCurl);
byId("reset-button").addEventListener("click", () => {
  form.reset();
  showProblem(byId("form-problem"), null);
  renderCurl();
});
byId("stop-button").addEventListener("click", () => run?.stop());
byId("curl-copy").addEventListener("click", copyCommand);
addEventListener("popstate", followAddress);
addEventListener("hashchange", followAddress);
// A page that comes back from the browser's cache has lost its connection without an error.
addEventListener("pageshow", (event) => event.persisted && run && !run.over && run.open(run.state.lastId));
setInterval(() => {
  view.renderClock();
  renderTitle();
}, CLOCK_MS);
setInterval(poll, LIST_MS);
begin();
