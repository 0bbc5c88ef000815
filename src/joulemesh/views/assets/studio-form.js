// The scenario as a form, made from what the server says about every field.

import { change } from "./studio.js";

const rows = new Map();

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function makeForm(form) {
  const place = document.getElementById("form");
  for (const section of form.sections) {
    const group = element("details", { class: "group" }, element("summary", {}, element("h3", {}, section.title)));
    group.open = ["budget", "devices", "network"].includes(section.name);
    if (section.meaning) group.append(element("p", { class: "hint" }, section.meaning));
    const more = element("details", { class: "more" }, element("summary", {}, "More fields"));
    for (const field of section.fields) (field.first ? group : more).append(makeRow(field, form.profiles[field.name]));
    if (more.children.length > 1) group.append(more);
    place.append(group);
  }
  place.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("filter").addEventListener("input", (event) => filter(event.target.value.trim().toLowerCase()));
}

function makeRow(field, profiles) {
  const id = `field-${field.name.replace(".", "-")}`;
  const origin = element("span", { class: "origin" });
  const label = element("label", { for: id, title: field.name }, element("span", {}, field.label), origin);
  const input = makeInput(field, id, profiles);
  const unit = element("span", { class: "unit" }, field.unit);
  const entry = element("div", { class: "entry" }, input, ...(field.unit ? [unit] : []));
  if (input.list === null && field.choices.length && field.kind === "text") entry.append(makeList(field, id, input, profiles));
  const about = [field.meaning, field.range, field.default ? `default ${said(field.default, field.unit) || field.default}` : "", field.example ? `such as ${field.example}` : ""];
  const hint = element("p", { class: "hint", id: `${id}-hint` }, unbroken(about.filter(Boolean).join("; ")));
  const error = element("p", { class: "error", id: `${id}-error`, role: "alert", hidden: "" });
  const row = element("div", { class: "field", "data-field": field.name }, label, entry, hint, error);
  rows.set(field.name, { row, input, unit, origin, hint, error, field, profiles, said: "" });
  return row;
}

// A large or small figure as people say it: 20 MHz for 20000000.0; empty where the figure itself is plain.
const PREFIXED = ["J", "s", "W", "Hz", "bit/s", "J/bit"];
function said(text, unit) {
  const size = text.trim() === "" ? NaN : Math.abs(Number(text));
  return PREFIXED.includes(unit) && (size >= 1e4 || (size > 0 && size < 0.1)) ? si(Number(text), unit) : "";
}

function makeInput(field, id, profiles) {
  const described = { id, "aria-describedby": `${id}-hint ${id}-error` };
  let input;
  if (field.kind === "text") {
    input = element("input", { ...described, type: "text", autocomplete: "off", spellcheck: "false" });
    if (field.optional) input.placeholder = "not set";
  } else {
    input = element("select", described);
    if (field.optional) input.append(new Option("not set", ""));
    for (const choice of field.choices) input.append(new Option(choice, choice));
  }
  const enter = () => {
    const one = rows.get(field.name);
    if (input.value !== one.said || one.input.getAttribute("aria-invalid")) change({ do: "set", fields: { [field.name]: input.value } }, field.name);
  };
  input.addEventListener("change", enter);
  return input;
}

// Words that a field takes beside what is typed.
function makeList(field, id, input, profiles) {
  const list = element("datalist", { id: `${id}-list` });
  for (const choice of field.choices) list.append(new Option(profiles?.find((one) => one.name === choice)?.summary ?? "", choice));
  input.setAttribute("list", `${id}-list`);
  return list;
}

export function showFields(fields) {
  for (const [name, one] of rows) {
    const now = fields[name];
    if (!now) continue;
    if (one.input.matches("select") && ![...one.input.options].some((option) => option.value === now.text)) one.input.append(new Option(now.text, now.text));
    one.said = one.input.value = now.text;
    const words = said(now.text, one.field.unit);
    one.unit.textContent = words ? `${one.field.unit} = ${words}` : one.field.unit;
    if (now.many) one.input.placeholder = `${now.many.toLocaleString("en")} values: see the devices`;
    else if (one.input.placeholder) one.input.placeholder = one.field.optional ? "not set" : "";
    if (one.origin.textContent !== now.origin) one.origin.textContent = now.origin;
    one.row.classList.toggle("own", now.origin.startsWith("given"));
    if (one.profiles) profileHint(one, now.text);
  }
}

function profileHint(one, text) {
  const found = one.profiles.find((profile) => profile.name === text);
  one.hint.textContent = found ? found.summary : one.field.meaning;
}

// Say what is wrong next to a field; false if there is no such field. Without a text it is only marked.
export function fieldError(name, text) {
  const one = rows.get(name);
  if (!one) return false;
  one.input.setAttribute("aria-invalid", "true");
  one.error.hidden = !text;
  one.error.textContent = text.replace(`${name}: `, "");
  if (text) {
    for (let part = one.row.parentElement; part; part = part.parentElement) if (part.matches("details")) part.open = true;
  }
  return true;
}

export function clearErrors() {
  for (const one of rows.values()) {
    if (!one.input.hasAttribute("aria-invalid")) continue;
    one.input.removeAttribute("aria-invalid");
    one.error.hidden = true;
    one.error.textContent = "";
  }
}

function filter(words) {
  const fits = ({ field }) => !words || `${field.name} ${field.label} ${field.meaning}`.toLowerCase().includes(words);
  for (const one of rows.values()) one.row.hidden = !fits(one);
  for (const group of document.querySelectorAll("#form details")) {
    const any = [...group.querySelectorAll(".field")].some((row) => !row.hidden);
    group.hidden = !any;
    if (words && any) group.open = true;
  }
}
