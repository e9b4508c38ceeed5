'use strict';
/* Sliders for a budget: what lies outside is faint in the first figure, and the answer is that of
   `report --budget` with the same limits. */
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const { sliders, told, order, pairs } = data.budget;
const place = document.getElementById('budget');
const answer = document.getElementById('verdict');
if (!sliders.length) {
  document.getElementById('budget-section').hidden = true;
  return;
}
const element = (name, attributes, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const withUnit = (slider, value) => `${value.toFixed(slider.digits)} ${slider.unit}`.trim();
const runs = Object.values(order).flat();
const value = (at, slider) => data.cells[at].metrics[slider.metric];

/* A slider stops at the runs' own values: between two of them the answer is the same. */
for (const slider of sliders) {
  slider.stops = [...new Set(runs.map((at) => value(at, slider)))].sort((a, b) => a - b);
  slider.input = element('input', { type: 'range', min: -1, max: slider.stops.length - 1, step: 1,
    value: slider.stops.length - 1, id: `budget-${slider.name}` });
  slider.output = element('output', { for: slider.input.id });
  slider.input.addEventListener('input', show);
  place.append(element('label', {}, `${slider.name} at most `, slider.input, ' ', slider.output));
}
/* Left of the first stop no run is within the limit: half of the least value stands there. */
const limit = (slider) => slider.stops[slider.input.value] ?? slider.stops[0] / 2;
const excess = (at) => Math.max(...sliders.map((slider) =>
  (value(at, slider) - limit(slider)) / Math.abs(limit(slider))));

function verdict(split) {
  const judged = order[split];
  const within = judged.filter((at) => excess(at) <= 0);
  const lines = [];
  const start = `${split || 'unnamed data'}: `;
  if (within.length) {
    lines.push(`${start}${within.length} of ${judged.length} runs are within it`,
      `best: ${told[within[0]]}`,
      within.length < 2 ? 'no runner-up: no other run is within it'
        : `runner-up: ${told[within[1]]}; ${pairs[`${within[0]},${within[1]}`]}`);
  } else if (judged.length) {
    const nearest = judged.reduce((a, b) => excess(b) < excess(a) ? b : a);
    const missed = sliders.filter((slider) => value(nearest, slider) > limit(slider))
      .map((slider) => `${slider.name} by ${withUnit(slider, value(nearest, slider) - limit(slider))}`);
    lines.push(`${start}none of ${judged.length} runs reaches it`, `nearest: ${told[nearest]}`,
      `it misses ${missed.join(', ')}`);
  } else lines.push(`${start}no run can be judged by it`);
  return lines;
}

function fade() {
  const outside = new Set(runs.filter((at) => excess(at) > 0).map((at) => data.cells[at].name));
  for (const point of document.querySelectorAll('#figures .point')) {
    point.classList.toggle('outside', outside.has(point.dataset.cell));
  }
}

function show() {
  for (const slider of sliders) slider.output.value = withUnit(slider, limit(slider));
  answer.replaceChildren(...Object.keys(order).map((split) =>
    element('p', {}, ...verdict(split).flatMap((line, n) => n ? [element('br', {}), line] : [line]))));
  fade();
}
new MutationObserver(fade).observe(document.getElementById('figures'), { childList: true });
show();
})();
