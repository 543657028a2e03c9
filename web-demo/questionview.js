// One question of a tool, answered where it is asked: its text, a form, and two buttons.

import { ApiError } from "./api.js";
import { element, setText, showProblem } from "./dom.js";
import { errorsByField, Form } from "./form.js";
import { approvalOf, argumentsSchema, formDetails, formSchema, isApproval, payloadOf, proposedArguments } from "./questions.js";

let count = 0;

export class QuestionView {
  /**
   * `parameters`: the schema of the tool's arguments, where it is known. `onAnswer(status, payload)` sends the answer,
   * or keeps it; it throws an `ApiError` when the gateway does not take it.
   */
  constructor(question, parameters, onAnswer) {
    this.question = question;
    this.parameters = parameters;
    this.onAnswer = onAnswer;
    this.approval = isApproval(question);
    count += 1; // ids of interrupts are no good in a document: they may hold anything
    const id = `question-${count}`;
    this.form = this.#createForm(id);
    this.text = element("p", { className: "question-text", id: `${id}-text`, "data-testid": "question-text" }, this.#text());
    this.problem = element("p", { className: "problem", role: "alert", "data-testid": "question-problem", hidden: true });
    this.kept = element("p", { className: "hint", role: "status", "data-testid": "question-kept", hidden: true });
    const [yes, no] = this.approval ? ["Approve", "Decline"] : ["Answer", "Dismiss"];
    this.yes = element("button", { type: "submit", className: "primary", "data-testid": "question-yes" }, yes);
    this.no = element(
      "button",
      { type: "button", className: "quiet", "data-testid": "question-no", onclick: () => this.#refuse() },
      no,
    );
    this.message = this.#createMessage(id);
    this.element = element(
      "form",
      { className: "question", noValidate: true, "data-testid": "question", "aria-labelledby": this.text.id },
      this.text,
      this.form.element,
      ...(this.message ? [this.message.parentElement] : []),
      this.problem,
      element("div", { className: "actions" }, this.yes, this.no, this.kept),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#agree();
    });
  }

  focus() {
    this.element.querySelector("input, select, textarea, button").focus({ preventScroll: true });
  }

  /** Until the run goes on, an answer that waits for others may be changed. */
  showKept(text) {
    setText(this.kept, text);
    this.kept.hidden = !text;
  }

  #text() {
    const { message, toolName } = this.question;
    return message ?? (this.approval ? `May ${toolName} run?` : `${toolName} asks you.`);
  }

  #createForm(id) {
    if (!this.approval) return new Form(formSchema(this.question), { prefix: id, titles: true, empty: "" });
    const proposed = proposedArguments(this.question);
    const form = new Form(argumentsSchema(this.parameters), { prefix: id, empty: "It takes no arguments." });
    form.fill(this.parameters ? proposed : { arguments: proposed });
    this.shown = form.read().values;
    return form;
  }

  /** A word for the model, as an approval takes one. */
  #createMessage(id) {
    if (!this.approval || !this.question.schema.properties.message) return null;
    const field = element("input", { type: "text", id: `${id}-message`, autocomplete: "off", "data-testid": "question-message" });
    const label = element("label", { htmlFor: field.id }, "If you decline: why?");
    element("div", { className: "field" }, label, field);
    return field;
  }

  #agree() {
    this.form.clearErrors();
    const { values, errors } = this.form.read();
    if (Object.keys(errors).length > 0) return this.form.showErrors(errors);
    const payload = this.approval
      ? approvalOf(this.question, this.parameters, this.shown, values)
      : payloadOf(this.question, values);
    return this.#answer("resolved", payload);
  }

  #refuse() {
    if (!this.approval) return this.#answer("cancelled");
    const message = this.message?.value.trim();
    return this.#answer("resolved", { approved: false, ...(message && { message }) });
  }

  async #answer(status, payload) {
    showProblem(this.problem, null);
    this.#setBusy(true);
    try {
      await this.onAnswer(status, payload);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#setBusy(false); // first: a disabled field takes no focus
      this.showRefusal(error);
    } finally {
      this.#setBusy(false);
    }
  }

  /** What does not fit is said at its field, the rest below the form. */
  showRefusal(error) {
    const details = formDetails(this.question, error.details);
    const elsewhere = this.form.showErrors(errorsByField(details));
    const allShown = details.length > 0 && elsewhere.length === 0;
    showProblem(this.problem, allShown ? "Some values do not fit, see above." : error.message);
  }

  #setBusy(busy) {
    this.yes.disabled = busy;
    this.no.disabled = busy;
  }
}
