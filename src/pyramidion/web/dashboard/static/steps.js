// The first steps: a file is read here and its first lines are shown before they are sent; the plan
// follows what is chosen; a file goes in parts, each under a key of its own, so that a part that is
// sent again is counted once; and the commands have in them what the forms have.
//
// Without this script the forms do the same, with rows that are pasted.
"use strict";

(() => {
  const PART = 200_000; // characters of a file that are sent at once
  const LARGE = 50_000_000; // bytes of one whose rows are not counted, but guessed from its first
  const byId = (id) => document.getElementById(id);

  // --- commands ------------------------------------------------------------------------------

  function word(text) {
    return /^[A-Za-z0-9@%+=:,./_-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
  }

  function fill(id, values) {
    const code = byId(id);
    if (!code) return;
    const known = { ...JSON.parse(code.dataset.values), ...values };
    code.dataset.values = JSON.stringify(known);
    code.textContent = code.dataset.template.replace(/\{(\w+)\}/g, (all, name) =>
      name in known ? word(known[name]) : all);
  }

  function copies(root) {
    for (const button of root.querySelectorAll("button[data-copy]")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        const code = byId(button.dataset.copy);
        try {
          await navigator.clipboard.writeText(code.textContent);
          button.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(code); // then Ctrl-C does it
          button.textContent = "Selected";
        }
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
    }
  }

  function plain(text) {
    return text.replace(/[^ -~]/g, "_");
  }

  // --- reading a file ------------------------------------------------------------------------

  // Rows of a text and what is left of it: a line break within quotes ends no row.
  function cut(text, most) {
    let quoted = false, rows = 0, end = 0;
    for (let at = 0; at < text.length && rows < most; at += 1) {
      const each = text[at];
      if (each === '"') quoted = !quoted;
      else if (each === "\n" && !quoted) { rows += 1; end = at + 1; }
    }
    return { head: text.slice(0, end), rest: text.slice(end), rows };
  }

  async function* texts(file) {
    const text = new TextDecoderStream("utf-8", { fatal: true }); // or values would change unseen
    const reader = file.stream().pipeThrough(text).getReader();
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch {
        throw new Error("This file is not UTF-8 text, or cannot be read; save it as UTF-8.");
      }
      if (part.done) return;
      yield part.value;
    }
  }

  async function sampled(file, lines) {
    let text = "";
    for await (const part of texts(file)) {
      text += part;
      const found = cut(text, lines);
      if (found.rows >= lines || text.length > 500_000) return found.head;
    }
    return text;
  }

  async function counted(file, sample, lines) {
    if (file.size > LARGE) return Math.round(file.size / (new Blob([sample]).size / lines));
    let rows = 0, quoted = false, last = "\n";
    for await (const part of texts(file)) {
      for (const each of part) {
        if (each === '"') quoted = !quoted;
        else if (each === "\n" && !quoted) rows += 1;
        last = each;
      }
    }
    return Math.max(0, rows + (last === "\n" ? 0 : 1) - 1); // without the header
  }

  function alarm(id, text) {
    const made = document.createElement("p");
    made.id = id;
    made.className = "wrong";
    made.setAttribute("role", "alert");
    made.textContent = text;
    return made;
  }

  // --- a file for a draft --------------------------------------------------------------------

  const drafting = byId("draft-form");
  if (drafting) {
    const { name, lines, sample } = drafting.elements;
    const chosen = drafting.querySelector("input[type=file]");
    const told = drafting.querySelector("input[type=hidden][name=file]");
    const said = () => fill("curl-draft", { name: name.value || "NAME", file: told.value });
    name.addEventListener("input", said);
    chosen.addEventListener("change", async () => {
      const found = chosen.files[0];
      if (!found) return;
      told.value = found.name;
      if (!name.value) name.value = found.name.replace(/\.csv$/i, "").replace(/[^A-Za-z0-9_-]+/g, "-").replace(/^[-_]+/, "").slice(0, 64);
      said();
      byId("wrong-sample")?.remove();
      try {
        const most = Number(chosen.dataset.sample);
        sample.value = await sampled(found, most);
        lines.value = String(await counted(found, sample.value, most));
        drafting.dataset.read = "yes";
      } catch (problem) {
        chosen.after(alarm("wrong-sample", problem.message));
      }
    });
  }

  // --- the plan follows ----------------------------------------------------------------------

  const planning = byId("plan-form");
  if (planning) {
    let timer = 0, asking = false, stale = false;
    const lead = () => {
      for (const button of planning.querySelectorAll("button[data-line]")) {
        button.addEventListener("click", () => toLine(Number(button.dataset.line)));
      }
    };
    const toLine = (line) => {
      const area = byId("schema"), lines = area.value.split("\n");
      const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
      area.focus();
      area.setSelectionRange(start, start + lines[line - 1].length);
      area.scrollTop = (line - 4) * (area.scrollHeight / lines.length);
    };
    const mark = (page) => {
      for (const field of planning.querySelectorAll("input[name], textarea[name], select[name]")) {
        const now = field.id && page.getElementById(field.id);
        if (!now) continue;
        for (const name of ["aria-invalid", "aria-describedby"]) {
          if (now.hasAttribute(name)) field.setAttribute(name, now.getAttribute(name));
          else field.removeAttribute(name);
        }
        byId(`wrong-${field.name}`)?.remove();
        const why = page.getElementById(`wrong-${field.name}`);
        if (why) field.after(document.importNode(why, true));
      }
    };
    const tell = (found) => {
      const facts = [...found.querySelectorAll(".facts div")].map((each) => each.textContent.trim().replace(/\s+/g, " "));
      byId("plan-said").textContent = facts.join("; ") || "There is no plan: see the fields that are marked.";
    };
    const again = async () => {
      if (asking) { // one plan at a time; what was typed meanwhile is asked for after it
        stale = true;
        return;
      }
      asking = true;
      const place = byId("planned");
      place.setAttribute("aria-busy", "true");
      const seen = planning.querySelector("input[name=seen]")?.checked;
      try {
        const answer = await fetch(planning.getAttribute("action"), {
          method: "POST", headers: { "X-Live": "1" }, credentials: "same-origin", redirect: "error",
          body: new URLSearchParams(new FormData(planning)),
        });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const found = page.getElementById("planned");
        if (stale || !found) return;
        place.replaceChildren(...document.importNode(found, true).childNodes);
        const box = planning.querySelector("input[name=seen]");
        if (box && seen) box.checked = true;
        mark(page);
        tell(found);
        copies(place);
        lead();
      } catch {
        // What stands there stays; the buttons ask again.
      } finally {
        place.removeAttribute("aria-busy");
        asking = false;
        if (stale) {
          stale = false;
          again();
        }
      }
    };
    planning.addEventListener("input", (event) => {
      if (event.target.name === "seen") return;
      for (const by of ["epsilon", "target"]) {
        if (event.target.id === by) planning.querySelector(`input[name=by][value=${by}]`).checked = true;
      }
      clearTimeout(timer);
      timer = setTimeout(again, 350);
    });
    lead();
  }

  // --- a file of rows ------------------------------------------------------------------------

  const sending = byId("rows-form");
  if (sending) {
    const chosen = byId("send");
    chosen.addEventListener("change", () => {
      const found = chosen.files[0];
      if (!found) return;
      for (const each of document.querySelectorAll("input[type=hidden][name=file]")) each.value = found.name;
      fill("curl-observe", { file: found.name, key: plain(found.name) });
    });
    sending.addEventListener("submit", async (event) => {
      const file = chosen.files[0];
      if (!file) return; // what was pasted goes as a form does
      event.preventDefault();
      const button = sending.querySelector("button[type=submit]");
      button.disabled = true;
      byId("sending").hidden = false;
      try {
        await sendFile(file);
        location.assign(`${sending.action.replace(/\/rows$/, "")}?file=${encodeURIComponent(file.name)}&sent=${Date.now()}#model`);
      } catch (problem) {
        say(problem.message);
      } finally {
        button.disabled = false;
      }
    });

    const say = (text) => {
      byId("wrong-rows")?.remove();
      sending.append(alarm("wrong-rows", text));
    };

    const sendPart = async (rows, key, file) => {
      const body = new URLSearchParams(new FormData(sending));
      body.set("rows", rows);
      body.set("key", key);
      body.set("file", file.name);
      let answer;
      try {
        answer = await fetch(sending.action, {
          method: "POST", credentials: "same-origin", redirect: "error", body,
        });
      } catch {
        throw new Error("The service does not answer, or the login is over; log in, and send the file again.");
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.ok) return Number(page.getElementById("receipt").dataset.accepted);
      const wrong = page.querySelector(".wrong, .lead");
      throw new Error(wrong ? wrong.textContent : "The service does not answer; send the file again.");
    };

    const sendFile = async (file) => {
      let header = "", rest = "", part = 0, rows = 0, done = 0;
      const mark = `${file.name} ${file.size} ${file.lastModified}`;
      const send = async (text) => {
        try {
          rows += await sendPart(header + text, `${mark} ${part}`, file);
        } catch (problem) {
          const before = rows ? `${rows} rows before this are in, and are counted once if you send the file again. ` : "";
          throw new Error(before + problem.message);
        }
        part += 1;
        done += new Blob([text]).size;
        byId("progress").value = (100 * done) / file.size;
        byId("sent").textContent = `${rows.toLocaleString("en")} rows`;
      };
      for await (const text of texts(file)) {
        rest += text;
        if (!header) {
          const first = cut(rest, 1);
          if (!first.rows) continue;
          header = first.head;
          rest = first.rest;
        }
        while (rest.length > PART) {
          const found = cut(rest.slice(0, PART), Infinity);
          if (!found.rows) break; // a row longer than a part
          await send(found.head);
          rest = rest.slice(found.head.length);
        }
      }
      if (rest.trim() || !part) await send(rest);
    };
  }

  // --- a model, and a prediction -------------------------------------------------------------

  const model = byId("model-form");
  if (model) {
    model.addEventListener("input", () => {
      const kind = model.querySelector("input[name=estimator]:checked");
      const params = kind ? kind.dataset.params : "{}";
      const recipe = `{"estimator": ${JSON.stringify(kind ? kind.value : "")}` + (params === "{}" ? "}" : `, "params": ${params}}`);
      fill("curl-register", { model: byId("model-name").value, recipe });
    });
  }

  const asking = byId("predict-form");
  if (asking) {
    const field = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    asking.addEventListener("input", () => {
      const values = { model: byId("asked").value };
      const row = [...asking.elements].filter((each) => each.name.startsWith("of "));
      if (row.length) values.row = row.map((each) => field(each.value)).join(",");
      fill("curl-predict", values);
    });
  }

  copies(document);
})();
