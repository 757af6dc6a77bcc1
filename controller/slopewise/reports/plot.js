"use strict";
// The charts are drawn already. This adds what a still picture cannot: the values under the mouse, and jobs by themselves.
const figures = JSON.parse(document.getElementById("figures").textContent);
const box = document.createElement("div");
box.className = "values";
box.hidden = true;
document.body.append(box);
const selected = new Set();
const isShown = (place) => selected.size === 0 || place === null || selected.has(place);

const indexAt = (moments, at) => {
  let low = 0, high = moments.length;
  while (low < high) { const middle = (low + high) >> 1; if (moments[middle] <= at) low = middle + 1; else high = middle; }
  return low - 1;
};

const place = (event) => {
  const right = event.clientX + 18 + box.offsetWidth < innerWidth;
  box.style.left = `${right ? event.clientX + 14 : event.clientX - 14 - box.offsetWidth}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 4))}px`;
};

const line = (text, colour) => {
  const row = document.createElement("div");
  if (colour) { const dot = document.createElement("i"); dot.style.background = colour; row.append(dot); }
  row.append(text);
  return row;
};

for (const [id, figure] of Object.entries(figures)) {
  const frame = document.querySelector(`#${CSS.escape(id)} .frame`);
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y2", "100%");
  frame.addEventListener("pointermove", (event) => {
    const edges = frame.getBoundingClientRect();
    const share = (event.clientX - edges.left) / edges.width;
    const at = figure.low + share * (figure.high - figure.low);
    const rows = [];
    for (const series of figure.series) {
      const index = indexAt(series.at, at);
      if (index < 0 || !isShown(series.place) || (index === series.at.length - 1 && at > series.at[index] + 2)) continue;
      rows.push(line(`${series.name}: ${series.values[index]}${figure.unit}`, series.colour));
    }
    box.replaceChildren(line(`${at.toFixed(1)} s`), ...rows);
    box.hidden = rows.length === 0;
    for (const [name, value] of [["x1", share], ["x2", share]]) cursor.setAttribute(name, `${100 * share}%`);
    frame.append(cursor);
    place(event);
  });
  frame.addEventListener("pointerleave", () => { box.hidden = true; cursor.remove(); });
}

// Bars and marks have titles of their own, which browsers show late: show them at once.
for (const element of document.querySelectorAll(".frame title")) {
  const text = element.textContent;
  const shape = element.parentNode;
  element.remove();
  shape.setAttribute("aria-label", text);
  shape.addEventListener("pointermove", (event) => {
    box.replaceChildren(...text.split("\n").map((part) => line(part)));
    box.hidden = false;
    place(event);
    event.stopPropagation();
  });
  shape.addEventListener("pointerleave", () => { box.hidden = true; });
}

for (const button of document.querySelectorAll(".jobs button")) {
  button.addEventListener("click", () => {
    const job = Number(button.dataset.job);
    if (!selected.delete(job)) selected.add(job);
    button.setAttribute("aria-pressed", selected.has(job));
    for (const part of document.querySelectorAll(".frame [data-job]")) {
      part.classList.toggle("dim", !isShown(Number(part.dataset.job)));
    }
  });
}
