/**
 * What goes over the wire between the AG-UI gateway and its clients. Generated; see schemas/README.md.
 *
 * Readers must let unknown fields and unknown CUSTOM names pass.
 */

/** The run of a thread that is at work. */
export interface ActiveRun {
  runId: string;
}

/**
 * Structured progress that is not conversation content, materialised as a
 * message so it keeps its place in the sequence. Stands alone rather than
 * composing BaseMessage, because its content is an object rather than a
 * string.
 */
export interface ActivityMessage {
  subagentRunId?: string | null;
  id: string;
  role: "activity";
  activityType: string;
  content: {
    [key: string]: unknown;
  };
  metadata?: {
    [key: string]: unknown;
  } | null;
  [key: string]: unknown;
}

/**
 * A typed, categorized snapshot of an agent's current capabilities. All
 * fields are optional — agents only declare what they support. An omitted
 * field means the capability is not declared (unknown), not that it is
 * unsupported. The custom field is an escape hatch for
 * integration-specific capabilities that do not fit into the standard
 * categories.
 */
export interface AgentCapabilities {
  identity?: IdentityCapabilities | null;
  transport?: TransportCapabilities | null;
  tools?: ToolsCapabilities | null;
  output?: OutputCapabilities | null;
  state?: StateCapabilities | null;
  multiAgent?: MultiAgentCapabilities | null;
  reasoning?: ReasoningCapabilities | null;
  multimodal?: MultimodalCapabilities | null;
  execution?: ExecutionCapabilities | null;
  humanInTheLoop?: HumanInTheLoopCapabilities | null;
  custom?: {
    [key: string]: unknown;
  } | null;
  [key: string]: unknown;
}

/** An agent that this gateway runs. */
export interface AgentDescriptor {
  name: string;
  description: string;
}

/** The catalogue of agents. */
export interface AgentList {
  items: AgentDescriptor[];
}

/** Body of `POST /runs/{runId}/input`: the answer to an open question. */
export interface AnswerInput {
  interruptId: string;
  status: "resolved" | "cancelled";
  /** What the question's `responseSchema` asks for; `422` where it does not fit. */
  payload?: unknown;
}

/**
 * A message from the agent. Content is optional because a turn may consist
 * only of tool calls.
 */
export interface AssistantMessage {
  subagentRunId?: string | null;
  id: string;
  role: "assistant";
  name?: string | null;
  encryptedValue?: string | null;
  metadata?: {
    [key: string]: unknown;
  } | null;
  content?: string | null;
  toolCalls?: ToolCall[] | null;
  [key: string]: unknown;
}

/** An audio part. */
export interface AudioPart {
  type: "audio";
  id?: string | null;
  source: DataSource | UrlSource | FileSource;
  metadata?: unknown;
  [key: string]: unknown;
}

/** Why a call failed. Codes are open: `failed`, `invalid_arguments`, `denied`, `timeout`, or a tool's own. */
export interface CallError {
  code: string;
  message: string;
  retryable: boolean;
}

/** The person pressed Stop. */
export interface CancelledOutcome {
  type: "cancelled";
}

/** Body of `POST …/claim`: empty, or the claim to renew. */
export interface ClaimInput {
  claimId?: string | null;
}

/** A page has a call of one of its tools to itself, for as long as it renews the claim. */
export interface Claimed {
  claimId: string;
  /** Seconds. */
  expiresIn: number;
}

/** A content block of MCP: `text`, `image`, `audio`, `resource`, `resource_link`, or one of a later version. */
export interface ContentBlock {
  type: string;
  /** Of a `text` block. */
  text?: string;
  [key: string]: unknown;
}

/**
 * A named piece of ambient information given to the agent for the run,
 * distinct from the conversation.
 */
export interface Context {
  description: string;
  value: string;
  [key: string]: unknown;
}

/** A CUSTOM event: one of the gateway's own, or a tool's. */
export type CustomEvent = GatewayNoticeEvent | RunStoppingEvent | ToolDetachedEvent | ToolEvent | ToolOutputEvent | ToolProgressEvent | ToolRequestedEvent | ToolResultEvent | ToolResumedEvent | ToolWaitingEvent | ToolsChangedEvent;

/** The value of each of the gateway's own CUSTOM events, by its name. */
export interface CustomValues {
  "gateway.notice": GatewayNotice;
  "run.stopping": RunStopping;
  "tool.detached": ToolDetached;
  "tool.output": ToolOutputValue;
  "tool.progress": ToolProgress;
  "tool.requested": ToolRequested;
  "tool.result": ToolResult;
  "tool.resumed": ToolResumed;
  "tool.waiting": ToolWaiting;
  "tools.changed": ToolsChanged;
}

/** Bytes carried inline. */
export interface DataSource {
  type: "data";
  value: string;
  mimeType: string;
  [key: string]: unknown;
}

/** Nothing has moved: `reason` is for programs, `error` for people. */
export interface DetachRejected {
  status: "rejected";
  reason: "not_running" | "not_detachable";
  error: string;
}

/** A call has moved to the background. */
export interface Detached {
  status: "accepted";
  /** The run that goes on with it. */
  runId: string;
}

/** The calls of a run that have moved to the background. */
export interface DetachedAll {
  status: "accepted";
  jobs: DetachedCall[];
}

/** One of the calls that moved to the background. */
export interface DetachedCall {
  toolCallId: string;
  /** The run that goes on with it. */
  runId: string;
}

/** Instructions from the application developer. */
export interface DeveloperMessage {
  subagentRunId?: string | null;
  id: string;
  role: "developer";
  name?: string | null;
  encryptedValue?: string | null;
  metadata?: {
    [key: string]: unknown;
  } | null;
  content: string;
  [key: string]: unknown;
}

/** A document part. */
export interface DocumentPart {
  type: "document";
  id?: string | null;
  source: DataSource | UrlSource | FileSource;
  metadata?: unknown;
  [key: string]: unknown;
}

/** The body of every refusal. */
export interface ErrorAnswer {
  error: ErrorInfo;
}

/** What was refused. `code` is for programs, `message` for people; `details` depend on the code. */
export interface ErrorInfo {
  code: string;
  message: string;
  /** Of `400` and `422`: `[{field, message}]`; of `410`: `{firstEventId, lastEventId, status}`. */
  details?: unknown;
}

/** Of RUN_ERROR. */
export interface ErrorMetadata {
  tanstack: RunIds;
}

/** Any event that the gateway itself writes; each is one of AG-UI 1.0, https://ag-ui.com/spec/1.0/schema.json. */
export type Event = CustomEvent | RunError | RunFinished | RunStarted | ToolCallArgs | ToolCallEnd | ToolCallResult | ToolCallStart;

/**
 * Execution control and limits. Declare these so clients can set
 * expectations about how long or how many steps an agent run might take.
 */
export interface ExecutionCapabilities {
  codeExecution?: boolean | null;
  sandboxed?: boolean | null;
  maxIterations?: number | null;
  maxExecutionTime?: number | null;
  [key: string]: unknown;
}

/**
 * Bytes already at the provider, named by a handle the provider issued: an
 * OpenAI or Anthropic file id, a Gemini file URI, a storage URL only that
 * provider can read. No bytes travel and nothing is fetched. Only the
 * provider that minted the handle can resolve it; a peer that cannot drops
 * the part as it drops any part it cannot use.
 */
export interface FileSource {
  type: "file";
  value: string;
  provider?: string | null;
  mimeType?: string | null;
  [key: string]: unknown;
}

/** What TanStack's client reads. */
export interface FinishReason {
  finishReason: "stop";
}

/** Of RUN_FINISHED. */
export interface FinishedMetadata {
  tanstack: FinishReason;
}

/** The name and arguments of a tool call. */
export interface FunctionCall {
  name: string;
  arguments: string;
  [key: string]: unknown;
}

/** Something about the stream itself; at most one a code and run. */
export interface GatewayNotice {
  level: "info" | "warning" | "error";
  /** Open: `log_trimmed`, … */
  code: string;
  message: string;
}

/** Something about the stream itself; at most one a code and run. */
export interface GatewayNoticeEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "gateway.notice";
  value: GatewayNotice;
  metadata?: ToolMetadata;
}

/** What a client may ask of the gateway itself, under `forwardedProps.gateway`. */
export interface GatewayProps {
  onDisconnect?: "continue" | "cancel" | null;
  disconnectGrace?: number | null;
  /** Whether a question ends the run, to be resumed, or is asked while it goes on. */
  input?: "interrupt" | "open" | null;
  /** Whether the client's own tools run inside the run, by a page that claims them. */
  pageTools?: boolean;
}

/** Whether the gateway lives, and takes new runs. */
export interface Health {
  status: "ok" | "ready" | "draining" | "store_unavailable";
}

/**
 * Human-in-the-loop interaction support. Enable these when your agent can
 * pause execution to request human input, approval, or feedback before
 * continuing.
 */
export interface HumanInTheLoopCapabilities {
  supported?: boolean | null;
  approvals?: boolean | null;
  interventions?: boolean | null;
  feedback?: boolean | null;
  interrupts?: boolean | null;
  approveWithEdits?: boolean | null;
  [key: string]: unknown;
}

/**
 * Basic metadata about the agent. Useful for discovery UIs, agent
 * marketplaces, and debugging. Set these when you want clients to display
 * agent information or when multiple agents are available and users need
 * to pick one.
 */
export interface IdentityCapabilities {
  name?: string | null;
  type?: string | null;
  description?: string | null;
  version?: string | null;
  provider?: string | null;
  documentationUrl?: string | null;
  metadata?: {
    [key: string]: unknown;
  } | null;
  [key: string]: unknown;
}

/** An image part. */
export interface ImagePart {
  type: "image";
  id?: string | null;
  source: DataSource | UrlSource | FileSource;
  metadata?: unknown;
  [key: string]: unknown;
}

/** A question that ended a run and that a resume answers: AG-UI's own shape. */
export interface Interrupt {
  id: string;
  reason: string;
  message?: string;
  toolCallId?: string;
  responseSchema?: {
    [key: string]: unknown;
  };
  /** ISO 8601, UTC. */
  expiresAt?: string;
  metadata?: {
    [key: string]: unknown;
  };
}

/** The run ended with questions; a run that answers them goes on. */
export interface InterruptOutcome {
  type: "interrupt";
  interrupts: Interrupt[];
}

/** A call that ended with questions, as a JSON answer: `resume` with their answers runs it again. */
export interface InterruptedOutput {
  status: "interrupted";
  interrupts: Interrupt[];
  runId: string;
  toolCallId: string;
}

/** A secret for `?ticket=` that reads one run. */
export interface IssuedTicket {
  ticket: string;
  /** Of a run that is still at work a share ticket has no end yet. */
  expiresAt: string | null;
}

/**
 * Multi-agent coordination capabilities. Enable these when your agent can
 * orchestrate or hand off work to other agents.
 */
export interface MultiAgentCapabilities {
  supported?: boolean | null;
  delegation?: boolean | null;
  handoffs?: boolean | null;
  subagents?: SubagentInfo[] | null;
  [key: string]: unknown;
}

/**
 * Multimodal input and output support. Organized into input and output
 * sub-objects so clients can independently query what the agent accepts
 * versus what it produces.
 */
export interface MultimodalCapabilities {
  input?: MultimodalInputCapabilities | null;
  output?: MultimodalOutputCapabilities | null;
  [key: string]: unknown;
}

/**
 * Modalities the agent can accept as input. Clients use this to show or
 * hide file upload buttons, audio recorders, image pickers, etc.
 */
export interface MultimodalInputCapabilities {
  image?: boolean | null;
  audio?: boolean | null;
  video?: boolean | null;
  pdf?: boolean | null;
  file?: boolean | null;
  [key: string]: unknown;
}

/**
 * Modalities the agent can produce as output. Clients use this to
 * anticipate rich content in the agent's response.
 */
export interface MultimodalOutputCapabilities {
  image?: boolean | null;
  audio?: boolean | null;
  [key: string]: unknown;
}

/**
 * Output format support. Enable structuredOutput when your agent can
 * return responses conforming to a JSON schema, which is useful for
 * programmatic consumption.
 */
export interface OutputCapabilities {
  structuredOutput?: boolean | null;
  supportedMimeTypes?: string[] | null;
  [key: string]: unknown;
}

/** What TanStack's client reads. */
export interface OutputState {
  state: "output-error";
}

/** The open questions of the run that ended with them; one resume answers all. */
export interface PendingInterrupts {
  runId: string;
  pending: Interrupt[];
}

/**
 * Reasoning and thinking capabilities. Enable these when your agent
 * exposes its internal thought process (e.g., chain-of-thought, extended
 * thinking).
 */
export interface ReasoningCapabilities {
  supported?: boolean | null;
  streaming?: boolean | null;
  encrypted?: boolean | null;
  [key: string]: unknown;
}

/**
 * A span of the agent's reasoning, materialised as a message. Stands alone
 * rather than composing BaseMessage, because it carries no name.
 */
export interface ReasoningMessage {
  subagentRunId?: string | null;
  id: string;
  role: "reasoning";
  content: string;
  encryptedValue?: string | null;
  metadata?: {
    [key: string]: unknown;
  } | null;
  [key: string]: unknown;
}

/** Body of `POST …/result`: what the tool of a page came to. */
export interface ResultInput {
  claimId: string;
  /** What it came to, as a `ToolOutput`; null: the page navigated away, so nobody knows. */
  output: {
    [key: string]: unknown;
  } | null;
}

/** Of the result of a call that failed. */
export interface ResultMetadata {
  tanstack: OutputState;
}

/** An answer to one interrupt, sent on the run that continues from it. */
export interface ResumeEntry {
  interruptId: string;
  status: "resolved" | "cancelled";
  payload?: unknown;
  metadata?: {
    [key: string]: unknown;
  } | null;
  [key: string]: unknown;
}

/**
 * A request to run an agent. Also echoed back as RUN_STARTED.input. Only
 * threadId, runId and messages are required: those are the three the SDKs
 * already agree on, and for tools and context an absent key and an empty
 * array mean the same thing, so requiring them would catch nothing a
 * producer could get wrong.
 */
export interface RunAgentInput {
  threadId: string;
  runId: string;
  protocolVersion?: string | null;
  parentRunId?: string | null;
  state?: unknown;
  messages: (DeveloperMessage | SystemMessage | AssistantMessage | UserMessage | ToolMessage | ActivityMessage | ReasoningMessage)[];
  tools?: Tool[] | null;
  context?: Context[] | null;
  /** Passed on to the agent; what is under `gateway` is for the gateway itself. */
  forwardedProps?: {
    gateway?: GatewayProps | null;
  };
  resume?: ResumeEntry[] | null;
  [key: string]: unknown;
}

/** The last event of a run that failed. */
export interface RunError {
  type: "RUN_ERROR";
  /** Unix milliseconds. */
  timestamp: number;
  message: string;
  /** `interrupted`, `run_timeout`, `store_unavailable`, `internal`, `upstream_…`, or a later one. */
  code: string;
  metadata: ErrorMetadata;
}

/** What RUN_ERROR said. */
export interface RunFailure {
  code: string;
  message: string;
}

/** The last event of a run that did not fail. */
export interface RunFinished {
  type: "RUN_FINISHED";
  /** Unix milliseconds. */
  timestamp: number;
  threadId: string;
  runId: string;
  /** Of a run of `/tools/{name}`: what its call ended in. */
  result?: ToolOutput;
  outcome: SuccessOutcome | CancelledOutcome | InterruptOutcome;
  metadata: FinishedMetadata;
}

/** What TanStack's client reads. */
export interface RunIds {
  runId: string;
  threadId: string;
}

/** A page of runs, newest first; `next` is the `after` of the following page. */
export interface RunList {
  items: RunRecord[];
  next: string | null;
}

/** What is known of a run. */
export interface RunRecord {
  runId: string;
  threadId: string;
  parentRunId?: string;
  /** `tools` for runs of `/tools/{name}`. */
  agent: string;
  /** True when a call that was detached goes on in it. */
  background?: boolean;
  status: "running" | "waiting" | "stopping" | "completed" | "cancelled" | "interrupted" | "failed";
  /** Why it is being stopped, was stopped, or failed. */
  reason?: string;
  /** ISO 8601, UTC. */
  createdAt: string;
  /** ISO 8601, UTC. */
  startedAt?: string;
  /** ISO 8601, UTC. */
  endedAt?: string;
  /** Id of its last event so far. */
  lastEventId: number;
  outcome?: SuccessOutcome | CancelledOutcome | InterruptOutcome;
  error?: RunFailure;
  toolCalls: ToolCallRecord[];
}

/** The first event of every run. */
export interface RunStarted {
  type: "RUN_STARTED";
  /** Unix milliseconds. */
  timestamp: number;
  threadId: string;
  runId: string;
  protocolVersion: "1.0";
  parentRunId?: string;
}

/** The run is being stopped; its terminal event follows within `stop_grace`. */
export interface RunStopping {
  reason: "user" | "timeout" | "disconnect" | "run_timeout" | "shutdown" | "superseded" | "store" | "tool";
  message?: string;
}

/** The run is being stopped; its terminal event follows within `stop_grace`. */
export interface RunStoppingEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "run.stopping";
  value: RunStopping;
  metadata?: ToolMetadata;
}

/**
 * State and memory management capabilities. These tell the client how the
 * agent handles shared state and whether conversation context persists
 * across runs.
 */
export interface StateCapabilities {
  snapshots?: boolean | null;
  deltas?: boolean | null;
  memory?: boolean | null;
  persistentState?: boolean | null;
  [key: string]: unknown;
}

/** Body of the Stop routes: empty or `{"reason"?: text}`. */
export interface StopInput {
  reason?: string | null;
}

/** The runs of a thread that are being stopped now. */
export interface StoppedRuns {
  runIds: string[];
}

/** Describes a subagent that can be invoked by a parent agent. */
export interface SubagentInfo {
  name: string;
  description?: string | null;
  [key: string]: unknown;
}

/** The run came to its own end, whatever its calls ended in. */
export interface SuccessOutcome {
  type: "success";
  /** Calls of the client's own tools: the client runs them and starts the next run. */
  pendingToolCallIds?: string[];
}

/** Instructions from the system. */
export interface SystemMessage {
  subagentRunId?: string | null;
  id: string;
  role: "system";
  name?: string | null;
  encryptedValue?: string | null;
  metadata?: {
    [key: string]: unknown;
  } | null;
  content: string;
  [key: string]: unknown;
}

/** A text part. */
export interface TextPart {
  type: "text";
  id?: string | null;
  text: string;
  metadata?: unknown;
  [key: string]: unknown;
}

/** An open question of a thread, and the run that ended with it. */
export interface ThreadInterrupt {
  id: string;
  reason: string;
  message?: string;
  toolCallId?: string;
  responseSchema?: {
    [key: string]: unknown;
  };
  /** ISO 8601, UTC. */
  expiresAt?: string;
  metadata?: {
    [key: string]: unknown;
  };
  runId: string;
}

/** A thread as TanStack's client hydrates from it. */
export interface ThreadState {
  messages: UIMessage[];
  activeRun: ActiveRun | null;
  interrupts: PendingInterrupts | null;
}

/** A conversation as its runs left it. */
export interface ThreadView {
  threadId: string;
  messages: (DeveloperMessage | SystemMessage | AssistantMessage | UserMessage | ToolMessage | ActivityMessage | ReasoningMessage)[];
  activeRuns: RunRecord[];
  interrupts: ThreadInterrupt[];
}

/** Body of `POST /runs/{runId}/ticket`: empty or `{"use"?: "follow" | "share"}`. */
export interface TicketInput {
  use?: "follow" | "share";
}

/** A tool the agent may call. */
export interface Tool {
  name: string;
  description: string;
  parameters?: unknown;
  metadata?: {
    [key: string]: unknown;
  } | null;
  [key: string]: unknown;
}

/** MCP's hints about what a tool does. */
export interface ToolAnnotations {
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  openWorldHint?: boolean;
}

/**
 * A call an assistant message made. Carries no subagent attribution of its
 * own and inherits its containing message's, since several calls can share
 * one parent.
 */
export interface ToolCall {
  id: string;
  type?: "function";
  function: FunctionCall;
  encryptedValue?: string | null;
  metadata?: {
    [key: string]: unknown;
  } | null;
  [key: string]: unknown;
}

/** The call's arguments, as JSON text; absent when the client holds them. */
export interface ToolCallArgs {
  type: "TOOL_CALL_ARGS";
  /** Unix milliseconds. */
  timestamp: number;
  toolCallId: string;
  delta: string;
}

/** The arguments are complete; the tool runs from here on. */
export interface ToolCallEnd {
  type: "TOOL_CALL_END";
  /** Unix milliseconds. */
  timestamp: number;
  toolCallId: string;
}

/** One call of a run. */
export interface ToolCallRecord {
  toolCallId: string;
  toolName: string;
  status: "pending" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "timeout" | "interrupted" | "unavailable" | "unknown" | "detached";
  /** Absent while the call is `pending`. */
  startedAt?: string;
  /** ISO 8601, UTC. */
  endedAt?: string;
  /** The run that goes on with it in the background. */
  detachedRunId?: string;
}

/** What the model reads of a call's end. */
export interface ToolCallResult {
  type: "TOOL_CALL_RESULT";
  /** Unix milliseconds. */
  timestamp: number;
  /** `<toolCallId>:result`. */
  messageId: string;
  toolCallId: string;
  content: string;
  role: "tool";
  /** There when the call failed. */
  metadata?: ResultMetadata;
}

/** A call begins. */
export interface ToolCallStart {
  type: "TOOL_CALL_START";
  /** Unix milliseconds. */
  timestamp: number;
  toolCallId: string;
  toolCallName: string;
  /** The message that the client holds the call in. */
  parentMessageId?: string;
}

/** A tool that this session may call. */
export interface ToolDescriptor {
  name: string;
  description: string;
  /** JSON Schema of the arguments. */
  parameters: {
    [key: string]: unknown;
  };
  /** JSON Schema of `structuredContent`. */
  outputSchema?: {
    [key: string]: unknown;
  };
  /** Seconds; 0 waits forever. */
  timeout: number;
  taskSupport: "forbidden" | "optional" | "required";
  annotations: ToolAnnotations;
}

/** The call moved to the background. */
export interface ToolDetached {
  toolCallId: string;
  toolName: string;
  /** The background run to follow. */
  runId: string;
}

/** The call moved to the background. */
export interface ToolDetachedEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "tool.detached";
  value: ToolDetached;
  metadata?: ToolMetadata;
}

/** A custom event of a tool: any name but the gateway's own, any JSON object. */
export interface ToolEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: string;
  value: ToolEventValue;
  metadata: ToolMetadata;
}

/** What a tool emitted, and the call that did. `$too_large` stands for a value beyond `max_event_bytes`. */
export interface ToolEventValue {
  toolCallId: string;
  /** Bytes of the value that is not here. */
  $too_large?: number;
  [key: string]: unknown;
}

/** The catalogue of tools. */
export interface ToolList {
  items: ToolDescriptor[];
}

/**
 * What a tool returned, as a message in the conversation. Stands alone
 * rather than composing BaseMessage, because it carries no name.
 */
export interface ToolMessage {
  subagentRunId?: string | null;
  id: string;
  role: "tool";
  content: string | (TextPart | ImagePart | AudioPart | VideoPart | DocumentPart)[];
  toolCallId: string;
  error?: string | null;
  encryptedValue?: string | null;
  metadata?: {
    [key: string]: unknown;
  } | null;
  [key: string]: unknown;
}

/** Which tool an event is about, and the call that its call was made by. */
export interface ToolMetadata {
  toolName?: string;
  parentToolCallId?: string;
}

/** What a call ended in: an MCP result and a `status`. */
export interface ToolOutput {
  content: ContentBlock[];
  isError: boolean;
  structuredContent?: {
    [key: string]: unknown;
  };
  status: "completed" | "failed" | "cancelled" | "timeout" | "interrupted" | "unavailable" | "unknown" | "detached";
}

/** What a generator yielded. */
export interface ToolOutputEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "tool.output";
  value: ToolOutputValue;
  metadata?: ToolMetadata;
}

/** What a generator yielded. */
export interface ToolOutputValue {
  toolCallId: string;
  toolName: string;
  /** A `y` that is no mapping is `{"value": y}`. */
  output: {
    [key: string]: unknown;
  };
}

/** How far a tool is; at most one in 50 ms a call, the last one always. */
export interface ToolProgress {
  toolCallId: string;
  toolName: string;
  /** In the tool's own unit; never lower than before. */
  progress: number;
  /** What `progress` will be at the end. */
  total?: number;
  message?: string;
  /** There when `total` is known and positive. */
  percent?: number;
}

/** How far a tool is; at most one in 50 ms a call, the last one always. */
export interface ToolProgressEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "tool.progress";
  value: ToolProgress;
  metadata?: ToolMetadata;
}

/** A tool of the page that a page should run now. */
export interface ToolRequested {
  toolCallId: string;
  toolName: string;
  input: {
    [key: string]: unknown;
  };
}

/** A tool of the page that a page should run now. */
export interface ToolRequestedEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "tool.requested";
  value: ToolRequested;
  metadata?: ToolMetadata;
}

/** How a call ended, as data; TOOL_CALL_RESULT, right after it, has the text that the model reads. */
export interface ToolResult {
  toolCallId: string;
  toolName: string;
  status: "completed" | "failed" | "cancelled" | "timeout" | "interrupted" | "unavailable" | "unknown" | "detached";
  content: ContentBlock[];
  isError: boolean;
  structuredContent?: {
    [key: string]: unknown;
  };
  error?: CallError;
  durationMs: number;
  /** True when the tool's code could not be ended. */
  stillRunning?: boolean;
}

/** How a call ended, as data; TOOL_CALL_RESULT, right after it, has the text that the model reads. */
export interface ToolResultEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "tool.result";
  value: ToolResult;
  metadata?: ToolMetadata;
}

/** The answer to one question that ended a run; AG-UI's `ResumeEntry`, but closed as our bodies are. */
export interface ToolResumeEntry {
  interruptId: string;
  status: "resolved" | "cancelled";
  payload?: unknown;
  metadata?: {
    [key: string]: unknown;
  } | null;
}

/** The call waits no more: the person has answered, or there is nothing to wait for. */
export interface ToolResumed {
  toolCallId: string;
  toolName: string;
  waitedMs: number;
  /** The question that is over; absent for other waits. */
  interruptId?: string;
}

/** The call waits no more: the person has answered, or there is nothing to wait for. */
export interface ToolResumedEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "tool.resumed";
  value: ToolResumed;
  metadata?: ToolMetadata;
}

/** Body of `POST /tools/{name}`. */
export interface ToolRunInput {
  /** The answers to all open questions of an interrupted run, each once. */
  resume?: ToolResumeEntry[] | null;
  /** What the tool's `parameters` ask for; `422` where it does not fit. With `resume`: those that the call had, or absent. */
  arguments?: {
    [key: string]: unknown;
  };
  threadId?: string | null;
  runId?: string | null;
  toolCallId?: string | null;
  timeout?: number | null;
  onDisconnect?: "continue" | "cancel" | null;
  disconnectGrace?: number | null;
  parentRunId?: string | null;
}

/** The call waits for a person; its clock has stopped for good. */
export interface ToolWaiting {
  toolCallId: string;
  toolName: string;
  message?: string;
  /** What an answer must name; absent: nothing to answer here. */
  interruptId?: string;
  /** JSON Schema of the answer's `payload`. */
  responseSchema?: {
    [key: string]: unknown;
  };
  /** ISO 8601, UTC. */
  since: string;
}

/** The call waits for a person; its clock has stopped for good. */
export interface ToolWaitingEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "tool.waiting";
  value: ToolWaiting;
  metadata?: ToolMetadata;
}

/**
 * Tool calling capabilities. Distinguishes between tools the agent itself
 * provides (listed in items) and tools the client passes at runtime via
 * RunAgentInput.tools. Enable this when your agent can call functions,
 * search the web, execute code, etc.
 */
export interface ToolsCapabilities {
  supported?: boolean | null;
  items?: Tool[] | null;
  parallelCalls?: boolean | null;
  clientProvided?: boolean | null;
  [key: string]: unknown;
}

/** The session sees other tools now. */
export interface ToolsChanged {
  added: string[];
  removed: string[];
  visible: string[];
}

/** The session sees other tools now. */
export interface ToolsChangedEvent {
  type: "CUSTOM";
  /** Unix milliseconds. */
  timestamp: number;
  name: "tools.changed";
  value: ToolsChanged;
  metadata?: ToolMetadata;
}

/**
 * Declares which transport mechanisms the agent supports. Clients use this
 * to pick the best connection strategy. Only set flags to true for
 * transports your agent actually handles — omit or set false for
 * unsupported ones.
 */
export interface TransportCapabilities {
  streaming?: boolean | null;
  websocket?: boolean | null;
  httpBinary?: boolean | null;
  pushNotifications?: boolean | null;
  resumable?: boolean | null;
  [key: string]: unknown;
}

/** A message in TanStack's form. */
export interface UIMessage {
  id: string;
  role: "user" | "assistant" | "system";
  parts: UIPart[];
}

/** A part of a message: `text`, `tool-call`, `tool-result`, or content of the user. */
export interface UIPart {
  type: string;
  [key: string]: unknown;
}

/** Bytes referenced by URL, fetched by whoever needs them. */
export interface UrlSource {
  type: "url";
  value: string;
  mimeType?: string | null;
  [key: string]: unknown;
}

/** A message from the person using the application. */
export interface UserMessage {
  subagentRunId?: string | null;
  id: string;
  role: "user";
  name?: string | null;
  encryptedValue?: string | null;
  metadata?: {
    [key: string]: unknown;
  } | null;
  content: string | (TextPart | ImagePart | AudioPart | VideoPart | DocumentPart)[];
  [key: string]: unknown;
}

/** A video part. */
export interface VideoPart {
  type: "video";
  id?: string | null;
  source: DataSource | UrlSource | FileSource;
  metadata?: unknown;
  [key: string]: unknown;
}

/** Body of `POST …/waiting`: the page that runs the tool waits for a person. */
export interface WaitingInput {
  claimId: string;
  message?: string | null;
}
