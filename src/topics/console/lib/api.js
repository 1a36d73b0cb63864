// Requests to the server. The credential is in this module and in session storage, and leaves only as a header.

import { parseExact } from "./json.js";

const STORED = "topics.credential";
const PROBE_MS = 1000;

/** An error that the server answered with, or `offline` when there was no answer. */
export class ApiError extends Error {
  constructor(status, code, message, detail = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.detail = detail;
  }

  /** What to do next. */
  get next() {
    return NEXT_STEPS[this.code] ?? NEXT_STEPS[this.status] ?? NEXT_STEPS[500];
  }
}

/** A value of a form that cannot be sent. The message names the field, `next` says how to correct it. */
export class FormError extends Error {
  constructor(message, next) {
    super(message);
    this.next = next;
  }
}

// By error code, and by status for codes of later versions.
const NEXT_STEPS = {
  offline: "Check that the server runs and that this machine reaches it. The console tries again by itself.",
  invalid_request: "Correct the value that is named and try again.",
  batch_too_large: "Send fewer records or fewer bytes in one request, in several requests.",
  record_too_large: "Send less data in one record, or raise TOPICS_MAX_RECORD_BYTES.",
  unauthorized: "Sign in again with a key or a user that this server knows.",
  forbidden: "Use a key with the scope and the prefix that are named, or ask the operator of the server for one.",
  topic_not_found: "The topic may have been deleted. Open the list of topics, or create it with a first record.",
  router_not_found: "The router may have been deleted. Open Routes to see those that exist.",
  group_not_found: "The group may have been dropped. Open Groups to see those that exist.",
  stage_not_found: "The staged data has ended. Stage it again.",
  producer_not_found: "The producer's state was removed. Begin again with a new producer id.",
  not_found: "It may have been deleted. Go back to the list.",
  method_not_allowed: "Use a method that the API reference at /docs lists for this path.",
  not_acceptable: "Ask for application/json, or for a type that the API reference at /docs lists.",
  topic_exists_incompatible: "Type and partitions are fixed when a topic is created. Choose another name.",
  pipeline_exists: "A pipeline of this name runs already. Stop it on the Pipelines screen, or choose another name.",
  batch_differs: "The same key was used for other records. Use a new key.",
  topic_not_empty: "Delete the records of the topic first, or use an empty topic.",
  not_a_queue: "Open it as a topic, or create a topic of type queue.",
  partition_owned: "A live member owns the partition. Stop it, or end its session on this screen, and try again.",
  session_expired: "The session of this member has ended. Poll again to join the group.",
  router_cycle: "This router would lead back to its source. Choose another destination.",
  router_exists_incompatible: "A router of this name forwards something else. Delete it first, or choose another name.",
  payload_too_large: "Send a smaller request, or raise TOPICS_MAX_BODY_BYTES.",
  unsupported_media_type: "Send JSON with Content-Type: application/json.",
  topic_full: "Raise the cap of the topic on its Configuration tab, or delete records.",
  throttled: "Wait a moment and try again. If it happens often, look at the loop lag on the overview.",
  internal: "The log of the server has the request id and the reason.",
  corrupt_storage: "A segment is damaged. Run `topics check` on the data directory; restore the file from a backup.",
  not_ready: "The server replays its log after a start. The console tries again by itself.",
  shutting_down: "The server is stopping. The console reconnects when it is back.",
  read_only: "A sync of the log has failed. Check the disk, then restart the server.",
  storage_full: "Free disk space or delete records; deletes are accepted while the disk is full.",
  storage_error: "The disk reported an error. Look at Settings, Health for the file, and check the disk.",
  400: "Correct the value that is named and try again.",
  403: "Use a key that may do this, or ask the operator of the server for one.",
  404: "It may have been deleted. Go back to the list.",
  409: "It was changed meanwhile, or contradicts what exists. Reload the page and try again.",
  413: "Send less in one request.",
  429: "Wait a moment and try again.",
  500: "The log of the server has the request id and the reason.",
  503: "Wait a moment and try again. Settings, Health shows what fails.",
};

export const events = new EventTarget();

let credential = null;
let online = true;
let lostAt = 0;

try {
  credential = JSON.parse(sessionStorage.getItem(STORED));
} catch {
  // Storage can be blocked: then the credential lives as long as the page.
}

export const signedIn = () => credential !== null;
export const isOnline = () => online;

export function setCredential(token) {
  credential = token ? { token } : null;
  try {
    if (token) sessionStorage.setItem(STORED, JSON.stringify(credential));
    else sessionStorage.removeItem(STORED);
  } catch {
    // See above.
  }
}

export function headers(more = {}) {
  return credential ? { Authorization: `Bearer ${credential.token}`, ...more } : more;
}

/** Send a request; answers the decoded body. `exact` names the field whose numbers keep all their digits. Raises ApiError. */
export async function request(method, path, body, { signal, exact, accept = "application/json" } = {}) {
  const options = { method, signal, headers: headers({ Accept: accept }), cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  const response = await send(path, options);
  const text = await response.text();
  const answer = text ? JSON.parse(text) : {};
  if (exact) answer[exact] = parseExact(text)[exact];
  return answer;
}

export const get = (path, options) => request("GET", path, undefined, options);
export const post = (path, body, options) => request("POST", path, body, options);
export const put = (path, body, options) => request("PUT", path, body, options);
export const del = (path, options) => request("DELETE", path, undefined, options);

/** fetch, with errors of the server as ApiError and the state of the connection kept. */
export async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost();
    throw new ApiError(0, "offline", "The server does not answer.");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const { code = String(response.status), message = response.statusText, detail } = answer.error ?? {};
  if (response.status === 401) events.dispatchEvent(new CustomEvent("unauthorized", { detail: message }));
  if (code === "not_ready" || code === "shutting_down") lost();
  throw new ApiError(response.status, code, message, detail);
}

/** Report that the connection is lost, and look for the server until it is back. */
export function lost() {
  if (!online) return;
  online = false;
  lostAt = Date.now();
  events.dispatchEvent(new CustomEvent("offline"));
  probe();
}

async function probe() {
  try {
    const ready = await fetch("/v0/ready", { cache: "no-store", headers: headers() });
    const health = ready.status === 503 ? null : await fetch("/v0/health", { cache: "no-store", headers: headers() });
    if (health !== null) {
      const { uptime_ms: uptime } = await health.json().catch(() => ({}));
      const outage = Date.now() - lostAt;
      online = true;
      events.dispatchEvent(
        new CustomEvent("online", { detail: { outage, restarted: uptime < outage + PROBE_MS, uptime } }),
      );
      return;
    }
  } catch {
    // Still away.
  }
  setTimeout(probe, PROBE_MS);
}

export const topicPath = (topic, rest = "") => `/v0/topics/${encodeURIComponent(topic)}${rest}`;

/** A query string of the parameters that are given. */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
