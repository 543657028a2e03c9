// The page: connects the tools, the form, the run that is shown and the address.

import { address, ApiError, listAgents, listTools, startCalls, startRun, stopRun } from "./api.js";
import { copyFrom } from "./clipboard.js";
import { runCommand, stopCommand } from "./curl.js";
import { byId, setText, showProblem } from "./dom.js";
import { errorsByField, Form } from "./form.js";
import { forgetRun, newId, rememberedRuns, rememberJob, rememberRun, show, shown, threadId } from "./history.js";
import { Jobs } from "./jobs.js";
import { JobsView } from "./jobsview.js";
import { PageTools } from "./page-tools.js";
import { renderPicks, renderRuns } from "./picks.js";
import { Run } from "./run.js";
import { RunList } from "./runlist.js";
import { RunView } from "./runview.js";
import { callsInput, SeveralView } from "./several.js";
import { ShareView } from "./share.js";
import { isOver, ownCalls } from "./state.js";
import { Talk } from "./talk.js";
import { themeTool } from "./theme.js";
import { statusText, toolsText } from "./words.js";

const CLOCK_MS = 250;

/** How often the list of runs is looked at: while something in it is at work, and for what other tabs have started. */
const BUSY_MS = 3000;
const IDLE_MS = 15_000;

const view = new RunView({ open: openRun, answer, parametersOf, isJob: (runId) => jobs.has(runId) });
const share = new ShareView();
const runs = new RunList();
const jobs = new Jobs();
const jobsView = new JobsView(openRun, stopJob);
const talk = new Talk({ started, stop: () => run?.stop() });
const pageTools = new PageTools({ baseUrl: address(".") });
/** Runs that are shown no more, for which a tool of this page is at work. */
const kept = new Set();
const forms = new Map();
let agents = [];
let tools = []; // of the gateway, then those of this page: `onPage`
let tool = null;
let form = null;
let several = null;
let run = null;
let listedAt = 0;
let frame = 0;
let lastStatus = "";

// --- what is shown -------------------------------------------------------------------------------------------------

/** At most one pass over the DOM a frame, however many events arrive. */
function changed() {
  frame ||= requestAnimationFrame((now) => {
    frame = 0;
    if (view.render(now)) changed();
    talk.render();
    adoptArguments();
    if (run && run.state.status !== lastStatus) statusChanged();
    if (run?.gone && run.ticket === null) forgetRun(run.runId);
  });
}

function statusChanged() {
  lastStatus = run.state.status;
  renderRecent();
  if (run.over && run.ticket === null) refreshRuns();
}

function renderAllTools() {
  const pick = (onPage) => tools.filter((each) => Boolean(each.onPage) === onPage);
  renderPicks(byId("agents"), "agent", agents, talk.agent?.name, chooseAgent);
  renderPicks(byId("tools"), "tool", pick(false), tool?.name, chooseTool);
  renderPicks(byId("page-tools"), "tool", pick(true), tool?.name, chooseTool);
  byId("agents-title").hidden = agents.length === 0;
  byId("page-tools-title").hidden = pick(true).length === 0;
}

function renderJobs() {
  jobsView.render(jobs.items, run?.runId);
}

function renderRecent() {
  const items = recentRuns();
  const current = items.find((item) => item.runId === run?.runId);
  // The stream knows it first.
  if (current && run.state.status !== "connecting") current.status = run.state.status;
  renderRuns(byId("recent"), byId("recent-title"), items, run?.runId, (item) => showRun(item.runId, item.tool));
  renderJobs();
  byId("more-runs").hidden = runs.next === null;
}

/** What the gateway lists; what this tab remembers only where it lists nothing, as without cookies. */
function recentRuns() {
  const remembered = rememberedRuns();
  if (runs.records.length === 0) return remembered;
  const listed = runs.records.map((record) => ({
    runId: record.runId,
    tool: agentOf(record.runId)?.name ?? (toolsText(record.toolCalls.map((call) => call.toolName)) || record.agent),
    status: record.status,
    startedAt: Date.parse(record.createdAt),
  }));
  const justStarted = remembered.filter((item) => item.runId === run?.runId && !runs.has(item.runId));
  return [...justStarted, ...listed];
}

function renderTitle() {
  const calls = run ? ownCalls(run.state) : [];
  const percent = calls.length === 1 ? calls[0].progress?.percent : undefined;
  const state = run && !run.over && typeof percent === "number" ? `${Math.floor(percent)} %` : run && statusText(run.state.status);
  const name = run && (agentOf(run.runId)?.name ?? toolsText(calls.map((call) => call.name)));
  setText(document.querySelector("title"), name ? `${state} · ${name} · AG-UI gateway` : "AG-UI gateway");
}

function renderCurl() {
  if (!tool || tool.onPage) return;
  const { values } = form.read();
  setText(byId("curl-command"), runCommand(tool.name, values));
  setText(byId("curl-stop"), stopCommand());
}

// --- what a person does --------------------------------------------------------------------------------------------

function chooseAgent(agent) {
  tool = null;
  byId("tool-panel").hidden = true;
  talk.open(agent, run && run.ticket === null && agentOf(run.runId) === agent ? run : null);
  renderAllTools();
  show({ run: run?.runId, ticket: run?.ticket, agent: agent.name });
}

/** The agent behind a run, `undefined` where a tool was run, as in the background, or nobody knows. */
function agentOf(runId) {
  if (jobs.has(runId)) return undefined;
  const known = [...runs.records, ...rememberedRuns()].find((item) => item.runId === runId);
  return agents.find(({ name }) => name === known?.agent);
}

function chooseTool(next) {
  talk.close();
  tool = next;
  form = formOf(tool);
  setText(byId("tool-name"), tool.name);
  setText(byId("tool-description"), tool.description);
  showProblem(byId("form-problem"), null);
  byId("fields").replaceChildren(form.element);
  byId("tool-panel").hidden = false;
  byId("curl").hidden = Boolean(tool.onPage);
  byId("page-tool-note").hidden = !tool.onPage;
  renderAllTools();
  renderCurl();
  show({ run: run?.runId, ticket: run?.ticket, tool: tool.name });
}

/** Each tool keeps its form, and so what was typed into it. */
function formOf({ name, parameters }) {
  if (!forms.has(name)) forms.set(name, new Form(parameters ?? {}));
  return forms.get(name);
}

async function start(event) {
  event.preventDefault();
  form.clearErrors();
  showProblem(byId("form-problem"), null);
  const { values, errors } = form.read();
  if (Object.keys(errors).length > 0) return form.showErrors(errors);
  const body = tool.onPage
    ? callsInput(newId(), threadId(), [{ name: tool.name, values }], descriptors([tool]))
    : { arguments: values, threadId: threadId(), runId: newId(), toolCallId: newId() };
  const button = byId("run-button");
  button.disabled = true;
  try {
    await (tool.onPage ? startCalls(body) : startRun(tool.name, body));
  } catch (error) {
    return refused(error);
  } finally {
    button.disabled = false;
  }
  form.touched = false; // what was typed is kept with the run from here on
  started(body.runId, tool.name);
}

async function startSeveral() {
  const calls = [];
  const chosen = tools.filter(({ name }) => several.chosen.includes(name));
  showProblem(byId("several-problem"), null);
  for (const named of chosen) {
    const { values, errors } = formOf(named).read();
    if (Object.keys(errors).length > 0) return misfit(named, errors);
    calls.push({ name: named.name, values });
  }
  const body = callsInput(newId(), threadId(), calls, descriptors(chosen.filter(({ onPage }) => onPage)));
  several.setBusy(true);
  try {
    await startCalls(body);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return showProblem(byId("several-problem"), error.message);
  } finally {
    several.setBusy(false);
  }
  started(body.runId, toolsText(calls.map((call) => call.name)));
}

/** The tools of this page as a RunAgentInput lists them. */
const descriptors = (named) => named.map(({ name, description, parameters }) => ({ name, description, parameters }));

function misfit(named, errors) {
  if (named !== tool) chooseTool(named);
  form.clearErrors();
  form.showErrors(errors);
  showProblem(byId("several-problem"), `Some values of ${named.name} do not fit, see its form.`);
}

function started(runId, label, agent) {
  rememberRun(runId, label, agent);
  showRun(runId, label);
  run.adopted = true; // its values are in the form already
  if (!agent) byId("run-panel").scrollIntoView({ block: "nearest" }); // on a phone it is below the form
  refreshRuns();
}

/** A run of this session, named by another one. */
function openRun(runId, toolName) {
  showRun(runId, toolName ?? recentRuns().find((item) => item.runId === runId)?.tool);
}

/** What a tool takes, or `undefined` for one that the page does not know. */
function parametersOf(name) {
  return tools.find((item) => item.name === name)?.parameters;
}

/** An answer to the last question of an interrupted run shows the run that goes on with it. */
async function answer(asked, question, status, payload) {
  const next = await asked.answer(question, status, payload);
  if (next === null) return;
  const agent = agentOf(asked.runId)?.name;
  const label = agent ?? toolsText(ownCalls(asked.state).map((call) => call.name));
  if (asked === run) started(next, label, agent);
  else rememberRun(next, label, agent);
}

async function stopJob(runId) {
  try {
    await stopRun(runId);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return false;
  } finally {
    refreshRuns();
  }
  return true;
}

function refused(error) {
  if (!(error instanceof ApiError)) throw error;
  const elsewhere = form.showErrors(errorsByField(error.details));
  const allShown = error.code === "invalid_arguments" && Array.isArray(error.details) && elsewhere.length === 0;
  showProblem(byId("form-problem"), allShown ? "Some values do not fit, see above." : error.message);
}

/** With a `ticket` the run is somebody else's: this page only looks on, and keeps nothing of it but the address. */
function showRun(runId, toolName, ticket = null) {
  const agent = agentOf(runId);
  const named = agent ? undefined : tools.find((item) => item.name === toolName);
  if (named && named !== tool) chooseTool(named);
  leaveRun();
  const owned = isMine(runId);
  run = new Run(runId, changed, owned ? null : ticket, owned || ticket === null ? heard : undefined);
  run.resumedBy = runs.resumedBy(runId);
  lastStatus = "";
  view.show(run);
  share.show(run);
  if (agent && run.ticket === null) chooseAgent(agent);
  else talk.leave();
  show({ run: runId, ticket: run.ticket, tool: tool?.name, agent: talk.agent?.name });
  run.open();
  changed();
  renderRecent();
}

/** A tool of this page that is at work goes on, and Stop must still reach it. */
function leaveRun() {
  if (!run) return;
  if (!pageTools.busy(run.runId)) return run.close();
  const left = run;
  kept.add(left);
  left.onChange = () => {
    if (pageTools.busy(left.runId)) return;
    left.close();
    kept.delete(left);
  };
}

/** Every event of a run that is this session's. */
function heard(event, runId) {
  pageTools.handle(event, runId);
  if (event.name !== "tool.detached") return;
  rememberJob(event.value.runId);
  refreshRuns();
}

/** Somebody who opens the link that they gave to others still sees their own run. */
const isMine = (runId) => runs.has(runId) || rememberedRuns().some((item) => item.runId === runId);

/** A run that was found again brings its arguments with it, unless the person has begun to type. */
function adoptArguments() {
  if (!run || run.adopted || run.ticket !== null || form?.touched || agentOf(run.runId)) return;
  const [call, second] = ownCalls(run.state);
  if (!call?.argsComplete) return;
  run.adopted = true;
  // The calls of an agent's message come without arguments: whoever sent the message has them.
  if (second || !call.args) return;
  if (call.name !== tool?.name) {
    const named = tools.find((item) => item.name === call.name);
    if (!named) return;
    chooseTool(named);
  }
  try {
    form.fill(JSON.parse(call.args));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  renderCurl();
}

// --- what happens by itself ----------------------------------------------------------------------------------------

async function refreshRuns() {
  listedAt = performance.now();
  await runs.refresh();
  renderRecent();
  await jobs.refresh(runs.records, runs.next === null);
  renderJobs();
  if (run && run.ticket === null && run.resumedBy === null) {
    run.resumedBy = runs.resumedBy(run.runId);
    if (run.resumedBy !== null) changed();
  }
}

async function olderRuns() {
  await runs.more();
  renderRecent();
}

async function poll() {
  const others = runs.records.some((record) => !isOver(record.status) && record.runId !== run?.runId);
  const busy = others || jobs.atWork.length > 0 || run?.asks; // a question may be answered elsewhere
  const due = performance.now() - listedAt >= (busy ? BUSY_MS : IDLE_MS);
  if (due && document.visibilityState === "visible") await refreshRuns();
}

function followAddress() {
  const wanted = shown();
  const agent = agents.find((item) => item.name === wanted.agent);
  const named = tools.find((item) => item.name === wanted.tool);
  if (agent && agent !== talk.agent) chooseAgent(agent);
  else if (named && named !== tool) chooseTool(named);
  const other = wanted.run !== run?.runId || (wanted.ticket !== run.ticket && !isMine(wanted.run));
  if (wanted.run && other) showRun(wanted.run, wanted.tool, wanted.ticket);
}

async function begin() {
  try {
    [tools, agents] = await Promise.all([listTools(), listAgents(), refreshRuns()]); // whose the run in the address is, the list tells
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return showProblem(byId("tools-problem"), error.message);
  }
  if (tools.length === 0 && agents.length === 0) showProblem(byId("tools-problem"), "This gateway has no tools.");
  pageTools.register(themeTool);
  await findPageTools();
  several = new SeveralView(tools);
  const wanted = shown();
  const last = wanted.run ? null : rememberedRuns()[0];
  const agent = agents.find((item) => item.name === wanted.agent);
  const named = tools.find((item) => item.name === (wanted.tool ?? last?.tool));
  const first = agent ?? named ?? tools.find((item) => !item.onPage) ?? agents[0] ?? tools[0];
  if (agents.includes(first)) chooseAgent(first);
  else if (first) chooseTool(first);
  if (wanted.run ?? last) showRun(wanted.run ?? last.runId, wanted.tool ?? last?.tool, wanted.ticket);
}

/** As in an agent's run, the page's tool counts where the gateway has one of the same name. */
async function findPageTools() {
  const own = (await pageTools.tools()).map((each) => ({ ...each, onPage: true }));
  tools = [...tools.filter((each) => !each.onPage && !own.some(({ name }) => name === each.name)), ...own];
  renderAllTools();
}

byId("form").addEventListener("submit", start);
byId("form").addEventListener("input", renderCurl);
byId("reset-button").addEventListener("click", () => {
  form.reset();
  showProblem(byId("form-problem"), null);
  renderCurl();
});
byId("stop-button").addEventListener("click", () => run?.stop());
byId("several").addEventListener("toggle", () => several.propose(tool.name));
byId("several-button").addEventListener("click", startSeveral);
byId("more-runs").addEventListener("click", olderRuns);
byId("curl-copy").addEventListener("click", (event) => copyFrom(byId("curl-command"), event.target));
addEventListener("popstate", followAddress);
addEventListener("hashchange", followAddress);
// A page that comes back from the browser's cache has lost its connection without an error.
addEventListener("pageshow", (event) => event.persisted && run && !run.over && run.open(run.state.lastId));
setInterval(() => {
  view.renderClock();
  renderTitle();
}, CLOCK_MS);
setInterval(poll, BUSY_MS);
document.modelContext?.addEventListener?.("toolchange", findPageTools);
addEventListener("visibilitychange", poll);
begin();
