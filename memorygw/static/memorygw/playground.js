// A chat over memorygw's own API, and beside it what memory gives to an answer and learns from it.

const find = (id) => document.getElementById(id);
const [page, log, message] = ["playground", "log", "message"].map(find);
const texts = JSON.parse(find("playground-texts").textContent);
const API = page.dataset.schema.replace(/schema$/, "");
const DRAFT = "memorygw-playground-draft";
const [WATCH_SECONDS, QUIET_SECONDS, FULL_LOOK_EVERY] = [20, 6, 4];

const state = {
  thread: null, // none until something is sent
  threads: [],
  reading: null, // the AbortController of the answer that is coming
  unsent: null, // the exchange whose question did not get through
  facts: new Map(), // by id, as they were last seen
  fresh: new Set(), // the ids of those that are new since the last question
  watch: 0, // the number of the newest watch; older ones end
};

const say = (name, values) => texts[name].replace(/{(\w+)}/g, (_, key) => values[key]);
const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
// randomUUID is there in secure contexts only.
const newKey = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join("-");

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter(Boolean));
  return element;
}

const text = (tag, textContent, className = "") => make(tag, { textContent, className, dir: "auto" });
const button = (textContent, onclick) => make("button", { type: "button", className: "plain", textContent, onclick });

// --- the API

class Refusal extends Error {
  constructor(code, error = {}, retryAfter = null) {
    const words = texts[`error_${code}`] ?? error.user_message ?? error.message ?? texts.error_other;
    const seconds = Math.ceil(Number(retryAfter)) || 0;
    super(seconds ? `${words} ${say("retry_after", { n: seconds })}` : words);
    Object.assign(this, { code, seconds, runId: error.run_id });
  }
}

async function send(method, path, body, { signal, key } = {}) {
  const headers = { "X-CSRFToken": page.querySelector("[name=csrfmiddlewaretoken]").value };
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const request = { method, headers, signal, body: body && JSON.stringify(body) };
  const response = await fetch(API + path, request).catch((error) => broken(error, "network"));
  if (response.ok) return response;
  const error = (await response.json().catch(() => null))?.error ?? {};
  throw new Refusal(error.code ?? `http_${response.status}`, error, response.headers.get("Retry-After"));
}

function broken(error, code) {
  throw error.name === "AbortError" ? error : new Refusal(code);
}

const read = async (path) => (await send("GET", path)).json();
const post = async (path, body, options) => (await send("POST", path, body, options)).json();

async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read().catch((error) => broken(error, "cut"));
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    yield* blocks.map(eventIn).filter(Boolean);
  }
}

function eventIn(block) {
  const [, name] = block.match(/^event: (.*)$/m) ?? [];
  const [, data] = block.match(/^data: (.*)$/m) ?? [];
  return data && { name, value: JSON.parse(data) };
}

// --- the conversation

function toEnd() {
  log.scrollTop = log.scrollHeight;
}

function add(element) {
  log.append(element);
  toEnd();
  return element;
}

function addTurn(role, said = "") {
  const speaker = texts[`role_${role}`] ?? role;
  return add(make("article", { className: `turn ${role}` }, text("p", speaker, "speaker"), text("p", said, "text")));
}

const textIn = (element) => element.querySelector(".text");
const remark = (element, words) => element.append(text("p", words, "remark"));

function textOf({ content, refusal }) {
  const parts = content ?? refusal ?? "";
  return typeof parts === "string" ? parts : parts.map((part) => part.text ?? `[${part.type}]`).join("\n");
}

function fill(element, turn) {
  textIn(element).textContent = textOf(turn);
  for (const { function: call } of turn.tool_calls ?? []) remark(element, say("calls", call));
  if (turn.status !== "complete") remark(element, texts[turn.status]);
}

const handlers = {
  turn(exchange, turn) {
    exchange.stored = true;
    if (turn.role === "user") return;
    fill(exchange.live ?? addTurn(turn.role), turn);
    exchange.live = null;
    toEnd();
  },
  delta(exchange, { text: said }) {
    // Who has scrolled up reads on.
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    exchange.live ??= addTurn("assistant");
    textIn(exchange.live).append(said);
    if (atEnd) toEnd();
  },
  tool(exchange, { status }) {
    if (status !== "started") return;
    exchange.live?.remove();
    exchange.live = addTurn("tool");
  },
  error(_, { error }) {
    throw new Refusal(error.code, error);
  },
  done(exchange, answer) {
    exchange.answer = answer;
    exchange.live?.remove();
  },
};

/** A question, or the decisions on a run that waits, until the answer is there. Run again, it has no second effect. */
async function run(exchange) {
  Object.assign(exchange, { answer: null, live: addTurn("assistant") });
  state.reading = new AbortController();
  state.fresh.clear();
  setBusy(true);
  try {
    const { signal } = state.reading;
    state.thread ??= await makeThread();
    exchange.context ??= await readContext(exchange.body.content);
    const options = { signal, key: exchange.key };
    const response = await send("POST", exchange.path(), { ...exchange.body, stream: true }, options);
    for await (const { name, value } of eventsOf(response)) handlers[name]?.(exchange, value);
    if (!exchange.answer) throw new Refusal("cut");
    await complete(exchange);
  } catch (error) {
    await fail(exchange, error);
  } finally {
    state.reading = null;
    setBusy(false);
    if (exchange.stored) watch().catch(saySo);
  }
}

function setBusy(busy) {
  const wasLost = [document.body, find("stop")].includes(document.activeElement);
  find("choice").disabled = find("send").hidden = busy;
  find("stop").hidden = !busy;
  log.setAttribute("aria-busy", busy);
  // At the end it may be anywhere, for a reason.
  if (busy || wasLost) message.focus();
}

async function complete({ answer, context }) {
  const given = givenFor(answer, context);
  showGiven(given);
  if (!answer.answer) showWaiting(answer.run, context);
  if (!given.missing) return;
  // Learned, or remembered by a tool, since the context was read.
  await look(false);
  showGiven(givenFor(answer, context));
}

async function fail(exchange, error) {
  const stopped = error.name === "AbortError";
  if (!stopped && !(error instanceof Refusal)) throw error;
  const said = exchange.live && textIn(exchange.live).textContent;
  if (said || (stopped && exchange.stored)) remark(exchange.live, texts.interrupted);
  else exchange.live?.remove();
  if (!exchange.stored) giveBack(exchange);
  if (stopped) return;
  const box = showError(error);
  const again = () => (box.remove(), exchange.live?.remove(), run(exchange));
  if (exchange.stored) box.append(button(texts.try_again, again));
  if (error.runId && error.code === "thread_awaiting_human") {
    await read(`runs/${error.runId}`).then((waiting) => showWaiting(waiting), showError);
  }
}

function showError(error) {
  if (["unauthorized", "forbidden"].includes(error.code)) sessionStorage.setItem(DRAFT, message.value);
  return add(make("div", { className: "error" }, text("p", error.message)));
}

/** The question did not get through: back with it into the composer, unless something else is there by now. */
function giveBack(exchange) {
  exchange.asked.classList.add("unsent");
  remark(exchange.asked, texts.unsent);
  message.value ||= exchange.body.content;
  state.unsent = exchange;
}

function submit(content) {
  if (state.reading || !content.trim()) return;
  log.querySelectorAll(".unsent, .error").forEach((element) => element.remove());
  const key = state.unsent?.body.content === content ? state.unsent.key : newKey();
  state.unsent = null;
  message.value = "";
  sessionStorage.removeItem(DRAFT);
  find("empty").hidden = true;
  run({ path: () => `threads/${state.thread.id}/ask`, body: { content }, key, asked: addTurn("user", content) });
}

function showWaiting({ id, pending }, context = null) {
  const decisions = [];
  const decide = (card, { tool_call_id }, approved) => {
    card.remove();
    decisions.push({ tool_call_id, approved });
    if (decisions.length < pending.length) return;
    log.querySelectorAll(".error").forEach((element) => element.remove());
    run({ path: () => `runs/${id}/continue`, body: { decisions }, key: newKey(), stored: true, context });
  };
  for (const call of pending) {
    const card = addTurn("tool", say("wants", call));
    const allow = call.kind === "approval" && button(texts.allow, () => decide(card, call, true));
    card.append(make("div", { className: "row" }, allow, button(texts.refuse, () => decide(card, call, false))));
  }
  toEnd();
}

// --- threads

async function makeThread() {
  const thread = await post("threads", {});
  history.replaceState(null, "", `#${thread.id}`);
  showThreads([thread, ...state.threads], thread);
  return thread;
}

async function open(thread) {
  Object.assign(state, { thread, unsent: null });
  history.replaceState(null, "", thread ? `#${thread.id}` : location.pathname);
  log.replaceChildren();
  find("empty").hidden = Boolean(thread);
  showThreads(state.threads);
  showGiven(null);
  showNotes(null);
  message.focus();
  if (!thread) return;
  const path = `threads/${thread.id}`;
  const parts = [read(`${path}/turns`), readContext(), read(`${path}/memory`), read(path)];
  const [turns, context, notes, now] = await Promise.all(parts);
  if (state.thread !== thread || state.reading) return;
  turns.items.forEach((turn) => fill(addTurn(turn.role), turn));
  showGiven(givenNext(context));
  showNotes(notes);
  if (now.status === "AWAITING_HUMAN") showError({ message: texts.waiting });
  toEnd();
}

const openOrSay = (thread) => open(thread).catch(showError);

function showThreads(threads, current = state.thread) {
  state.threads = threads;
  const rows = threads.map((thread) => {
    const row = button(thread.title || texts.untitled, () => openOrSay(thread));
    if (thread.id === current?.id) row.setAttribute("aria-current", "true");
    return make("li", {}, row);
  });
  find("threads").replaceChildren(...rows);
}

// --- what the model was given

const readContext = (query = "") =>
  post(`threads/${state.thread.id}/context`, { query }, { signal: state.reading?.signal });

function givenNext(context) {
  const tokens = say("about", { n: context.usage.prompt_tokens });
  return { ...context, when: "next_answer", turns: context.messages.length, tokens, missing: 0 };
}

function givenFor({ run: { memories, usage }, warnings }, { facts: read, notes, messages }) {
  const known = new Map([...state.facts.values(), ...read].map((fact) => [fact.id, fact]));
  const facts = memories.map((id) => known.get(id)).filter(Boolean);
  const tokens = usage.prompt_tokens ? say("reported", { n: usage.prompt_tokens }) : texts.not_reported;
  const missing = memories.length - facts.length;
  return { when: "this_answer", facts, missing, notes, turns: messages.length, tokens, warnings };
}

function showGiven(given) {
  find("given-empty").hidden = Boolean(given);
  if (!given) return find("given").replaceChildren();
  const facts = given.facts.map((fact) => `${fact.key}: ${fact.value}`);
  if (given.missing) facts.push(say("facts_gone", { n: given.missing }));
  const leftOut = given.warnings.map(({ code, count }) => say(code, { n: count }));
  // Without the delimiters and the heading, which are the same for all.
  const notes = given.notes.split("\n").slice(2, -1);
  const entries = { facts, notes, turns: [given.turns], tokens: [given.tokens] };
  const rows = Object.entries({ ...entries, left_out: leftOut }).flatMap(([name, values]) => [
    text("dt", texts[name]),
    ...(values.length ? values : [texts.none]).map((value) => text("dd", value, "text")),
  ]);
  const how = text("small", texts[`${given.when}_how`]);
  find("given").replaceChildren(text("p", texts[given.when], "when"), make("dl", {}, ...rows), how);
}

// --- what was learned

/** Look for it every second for a while; shorter when something came and nothing more does. */
async function watch() {
  const number = ++state.watch;
  showStatus(texts.looking);
  for (let [second, quiet] = [0, 0]; second < WATCH_SECONDS && !(state.fresh.size && quiet > QUIET_SECONDS); second++) {
    await pause(1);
    if (number !== state.watch) return;
    quiet = (await look(second % FULL_LOOK_EVERY === 0).catch(waitIfTold)) ? 0 : quiet + 1;
    if (quiet && document.hidden) break;
  }
  if (number === state.watch && !state.fresh.size) showStatus(texts.nothing_new);
}

async function waitIfTold(error) {
  if (!error.seconds) throw error;
  await pause(error.seconds);
}

/** Read the active facts; in full what waits, notes and a missing title, too. Whether there was anything new. */
async function look(full, marks = true) {
  const { thread } = state;
  const { data: active } = await read("memories?status=active");
  if (!full) return showFacts([...[...state.facts.values()].filter(isWaiting), ...active], marks);
  const { data: waiting } = await read("memories?status=pending_review");
  const isNew = showFacts([...waiting, ...active], marks);
  const notes = thread && (await read(`threads/${thread.id}/memory`));
  if (state.thread === thread) showNotes(notes);
  await readTitle(state.threads.find(({ title }) => !title));
  return isNew;
}

const isWaiting = (fact) => fact.status === "pending_review";

async function readTitle(thread) {
  if (!thread) return;
  thread.title = (await read(`threads/${thread.id}`)).title;
  if (thread.title) showThreads(state.threads);
}

/** Newest first. Drawn anew only when something changed: what is open, or has the focus, stays. */
function showFacts(facts, marks) {
  const [old, now] = [state.facts, new Map(facts.map((fact) => [fact.id, fact]))];
  const changed = [...now.values()].filter(({ id, updated_at, status }) => {
    return old.get(id)?.updated_at !== updated_at || old.get(id).status !== status;
  });
  if (!changed.length && now.size === old.size && find("facts").childElementCount) return false;
  state.facts = now;
  if (marks) changed.forEach((fact) => state.fresh.add(fact.id));
  if (state.fresh.size) showStatus(say("learned", { n: state.fresh.size }));
  const rows = [...now.values()].sort((a, b) => (a.updated_at < b.updated_at ? 1 : -1)).map(factRow);
  find("facts").replaceChildren(...(rows.length ? rows : [text("li", texts.no_facts, "quiet")]));
  return changed.length > 0;
}

function factRow(fact) {
  const isFresh = state.fresh.has(fact.id);
  const wait = isWaiting(fact) && (fact.operation === "delete" ? texts.to_forget : texts.waits);
  const marks = [isFresh && texts.new, wait].filter(Boolean).map((words) => text("span", words, "mark"));
  const line = make("p", { className: "text", dir: "auto" }, text("strong", `${fact.key}: `), fact.value, ...marks);
  const source = make("details", {}, text("summary", texts.where_from));
  source.addEventListener("toggle", () => showSource(source, fact).catch(showError), { once: true });
  return make("li", { className: isFresh ? "fresh" : "" }, line, source);
}

async function showSource(source, fact) {
  const { data, thread_id: threadId } = await read(`memories/${fact.id}/sources`);
  const quotes = data.flatMap((turn) => [text("blockquote", textOf(turn), "text"), text("small", say("turn", turn))]);
  const elsewhere = threadId && threadId !== state.thread?.id;
  const there = () => read(`threads/${threadId}`).then(openOrSay, showError);
  source.append(...(quotes.length ? quotes : [text("p", texts.no_quote, "quiet")]));
  if (elsewhere) source.append(button(texts.open_thread, there));
}

function showNotes(notes) {
  const lines = notes ? [notes.summary, ...notes.facts.map((fact) => `– ${fact}`)].filter(Boolean) : [];
  const heading = lines.length && text("p", say("notes_until", { n: notes.turn_count }), "quiet");
  const shown = text("p", lines.join("\n") || texts.none, lines.length ? "text" : "quiet");
  find("notes").replaceChildren(...[heading, shown].filter(Boolean));
}

function showStatus(words) {
  find("learned-status").textContent = words;
}

const saySo = (error) => showStatus(error.message);

// --- the page

function listen() {
  find("composer").addEventListener("submit", (event) => (event.preventDefault(), submit(message.value)));
  message.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit(message.value);
  });
  find("stop").addEventListener("click", () => state.reading?.abort());
  find("new-thread").addEventListener("click", () => openOrSay(null));
  for (const example of document.querySelectorAll(".examples button")) {
    example.addEventListener("click", () => submit(example.textContent));
  }
  document.addEventListener("visibilitychange", () => document.hidden || look(true).catch(saySo));
}

async function start() {
  page.hidden = false;
  find("thread-box").open = matchMedia("(min-width: 64rem)").matches;
  message.value = sessionStorage.getItem(DRAFT) ?? "";
  sessionStorage.removeItem(DRAFT);
  listen();
  message.focus();
  const wanted = location.hash.slice(1);
  const [memory, threads] = await Promise.all([read("me/memory"), read("threads?limit=100"), look(true, false)]);
  find("memory-off").hidden = memory.enabled;
  showThreads(threads.items);
  if (wanted) await read(`threads/${wanted}`).then(open, () => open(null));
}

start().catch(showError);
