// Sending a record, a new one or one that was sent before.

import { FormError, request, topicPath } from "../lib/api.js";
import { openDialog } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { field, toast } from "../lib/widgets.js";

function checkJson(name, text, next) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FormError(`${name} is not JSON: ${error.message}`, next);
  }
}

/** `like` holds what the form begins with; its data is JSON text, which is sent as it is. */
export async function sendRecord(info, like, done) {
  const data = h("textarea", {
    rows: "8",
    spellcheck: "false",
    "data-role": "data",
    value: like.data ?? '{\n  "text": "hello"\n}',
  });
  const tag = h("input", { type: "text", value: like.tag ?? "", "data-role": "tag" });
  const node = h("input", { type: "text", value: like.node ?? "" });
  const meta = h("input", {
    type: "text",
    value: like.meta ? JSON.stringify(like.meta) : "",
    placeholder: '{"trace": "abc"}',
  });
  const delay = h("input", { type: "number", min: "0", value: "0" });
  const partition = h("input", { type: "number", min: "0", value: String(like.partition ?? 0) });
  const sent = await openDialog(
    like.data === undefined ? `Send a record to ${info.topic}` : `Repeat a record in ${info.topic}`,
    {
      wide: true,
      body: [
        field("Data (any JSON)", data),
        h(
          "div",
          { class: "fields" },
          field("Tag", tag),
          field("Node", node),
          field("Meta (an object)", meta),
          info.partitions?.length ? field("Partition", partition) : null,
          info.type === "queue" ? field("Delay in ms", delay) : null,
        ),
      ],
      label: "Send",
      submit: async () => {
        checkJson("Data", data.value, "Texts need quotes, keys as well.");
        const rest = {};
        if (tag.value) rest.tag = tag.value;
        if (node.value) rest.node = node.value;
        if (meta.value)
          rest.meta = checkJson("Meta", meta.value, 'It is an object, such as {"trace": "abc"}, or empty.');
        if (info.type === "queue" && Number(delay.value)) rest.delay_ms = Number(delay.value);
        const record = `{"data":${data.value}${Object.entries(rest)
          .map(([key, value]) => `,${JSON.stringify(key)}:${JSON.stringify(value)}`)
          .join("")}}`;
        const place = info.partitions?.length ? `,"partition":${Number(partition.value)}` : "";
        return request("POST", topicPath(info.topic), `{"records":[${record}],"create":false${place}}`);
      },
    },
  );
  if (sent) {
    toast(`Sent as seq ${sent.last_seq}.`);
    done();
  }
}
