/* The figures: each draws the runs that the filter leaves. */
import {
  actions,
  byId,
  chunkText,
  colour,
  DASHES,
  data,
  el,
  format,
  hasTimelines,
  isNarrow,
  marker,
  nothing,
  remember,
  seriesKey,
  short,
  splits,
  state,
  svg,
  variantAt,
  visibleCells,
} from './state.js';

/* -- figures --------------------------------------------------------------------------------- */

const WIDTH = isNarrow ? 330 : 460;
const HEIGHT = 310;
const pen = document.createElement('canvas').getContext('2d');
pen.font = `12px ${getComputedStyle(document.body).fontFamily}`; // as the style has it for figures
const widthOf = (text) => pen.measureText(text).width;
const EDGE = { left: 50, right: 18, top: 14, bottom: 42 };

export function linearTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-6; at++) {
    ticks.push(+(at * step).toPrecision(12));
  }
  return { ticks, step };
}

/** Linear axes hold zero, so that a distance on paper is a ratio; log axes say that they are. */
function scale(values, axis, from, to) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  let ticks;
  if (axis.log) {
    low = Math.min(low, axis.keep ?? low);
    high = Math.max(high, axis.keep ?? high);
    const pad = Math.max((high / low) ** 0.06, 1.12);
    low /= pad;
    high *= pad;
    ticks = axis.ticks || [];
    for (let p = Math.floor(Math.log10(low)); !axis.ticks && p <= Math.log10(high); p++) {
      for (const m of high / low < 300 ? [1, 2, 5] : [1]) ticks.push(m * 10 ** p);
    }
    ticks = ticks.filter((tick) => tick >= low && tick <= high);
  } else {
    low = Math.min(0, low);
    high = Math.max(high, 0) || 1;
    const { step } = linearTicks(low, high, 5);
    low = Math.floor(low / step + 1e-9) * step;
    high = axis.cap ?? Math.ceil(high / step + 0.15) * step;
    ticks = linearTicks(low, high, 6).ticks;
  }
  const f = axis.log ? Math.log : (v) => v;
  const at = (v) => from + ((f(v) - f(low)) / (f(high) - f(low))) * (to - from);
  return { at, ticks };
}

const overlaps = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

const range = (axis, cell) => (axis.metric ? cell.intervals[axis.metric] : null);

/** The 95 % intervals of one point, where its axes have any: a box of both, or a line of one. */
function whiskers(p, x, y, spec, stroke) {
  const line = (a, b, c, d) =>
    svg('line', { class: 'whisker', x1: a, x2: b, y1: c, y2: d, stroke });
  const [across, along] = [range(spec.x, p.cell), range(spec.y, p.cell)];
  if (across && along) {
    return [
      svg('rect', {
        class: 'box',
        x: x.at(across[0]),
        y: y.at(along[1]),
        width: x.at(across[1]) - x.at(across[0]),
        height: y.at(along[0]) - y.at(along[1]),
        stroke,
        fill: stroke,
      }),
    ];
  }
  return [
    ...(across ? [line(x.at(across[0]), x.at(across[1]), y.at(p.y), y.at(p.y))] : []),
    ...(along ? [line(x.at(p.x), x.at(p.x), y.at(along[0]), y.at(along[1]))] : []),
  ];
}

/** The corners of the stairs below which no run lies. */
function stairs(points, x, y, top, right) {
  const front = points.filter((p) => p.cell.front).sort((a, b) => a.x - b.x || b.y - a.y);
  if (!front.length) return [];
  const corners = [[x.at(front[0].x), top]];
  for (const p of front) {
    corners.push([x.at(p.x), corners[corners.length - 1][1]], [x.at(p.x), y.at(p.at)]);
  }
  return [...corners, [right, corners[corners.length - 1][1]]];
}

/** A chart of points joined by series; a label that would cover another is left to the tooltip. */
function chart(cells, spec) {
  const late = state.late && spec.x.late ? spec.x.late : () => null;
  const points = cells
    .map((cell) => ({ cell, x: spec.x.value(cell), y: spec.y.value(cell), late: late(cell) }))
    .filter(
      (p) => p.x !== null && p.y !== null && (!spec.x.log || p.x > 0) && (!spec.y.log || p.y > 0),
    );
  const missing = cells.filter((cell) => !cell.error).length - points.length;
  const caption = el(
    'figcaption',
    {},
    spec.note + (missing > 0 ? ` Not drawn, for want of a number: ${missing}.` : ''),
  );
  const title = el('h3', {}, spec.title);
  // Against one chunk there is nothing to see that the table does not say.
  const isOneChunk = spec.x === chunkAxis && new Set(points.map((p) => p.x)).size < 2;
  if (!points.length || isOneChunk) return null;
  // A few runs far above the rest are at the edge, with their number next to them.
  const top = spec.hasFront ? data.ceilings[points[0].cell.split] : null;
  const isCut = (p) => top !== null && p.y > top && points.some((each) => each.y <= top);
  const far = spec.hasFront ? data.farthest[points[0].cell.split] : null;
  const isFar = (p) => far !== null && p.x > far && points.some((each) => each.x <= far);
  for (const p of points) {
    p.at = isCut(p) ? top : p.y;
    p.real = p.x;
    p.x = isFar(p) ? far : p.x;
  }
  const cap = points.some(isCut) ? top : null;
  const end = points.some((p) => p.real > p.x) ? far : null;
  if (end !== null) caption.append(` Runs later than ${format(end, 1)} s stand at the right edge.`);
  if (points.some((p) => p.late !== null)) caption.append(' Hollow: the 90th percentile.');
  if (cap !== null) caption.append(` Runs above ${format(cap, 0)} % are at that height.`);
  const isBeaten = (p) => spec.hasFront && p.cell.front === false;
  const tint = (p) => (isBeaten(p) ? 'var(--beaten)' : colour(p.cell));
  const isWide = spec.hasFront && points.length > 4 && matchMedia('(min-width: 60rem)').matches;
  const [width, height] = isWide ? [1140, 1.5 * HEIGHT] : [WIDTH, HEIGHT];
  const right = width - EDGE.right;
  const bottom = height - EDGE.bottom;
  const xTicks = spec.x.ticks ? spec.x.ticks(points) : null;
  const spans = (axis, of) => points.flatMap((p) => [of(p), ...(range(axis, p.cell) || [])]);
  const across = [...spans(spec.x, (p) => p.x), ...points.map((p) => p.late ?? p.x)].map((v) =>
    Math.min(v, end ?? v),
  );
  const x = scale(across, { ...spec.x, cap: end, ticks: xTicks }, EDGE.left, right);
  const heights = spans(spec.y, (p) => p.at ?? p.y).map((v) => Math.min(v, cap ?? v));
  const y = scale(heights, { ...spec.y, cap, ticks: null }, bottom, EDGE.top);
  const canvas = svg('svg', {
    viewBox: `0 0 ${width} ${height}`,
    role: 'group',
    'aria-label': `${spec.title}: ${spec.y.label} against ${spec.x.label}`,
  });
  for (const tick of y.ticks) {
    canvas.append(
      svg('line', { class: 'grid', x1: EDGE.left, x2: right, y1: y.at(tick), y2: y.at(tick) }),
      svg(
        'text',
        { class: 'faint', x: EDGE.left - 6, y: y.at(tick) + 4, 'text-anchor': 'end' },
        format(tick),
      ),
    );
  }
  let lastEnd = -Infinity;
  for (const tick of x.ticks) {
    const text = format(tick);
    const half = widthOf(text) / 2;
    canvas.append(
      svg('line', { class: 'grid', x1: x.at(tick), x2: x.at(tick), y1: bottom, y2: bottom + 4 }),
    );
    if (x.at(tick) - half < lastEnd + 4) continue;
    lastEnd = x.at(tick) + half;
    canvas.append(
      svg('text', { class: 'faint', x: x.at(tick), y: bottom + 16, 'text-anchor': 'middle' }, text),
    );
  }
  canvas.append(
    svg(
      'text',
      { x: (EDGE.left + right) / 2, y: height - 6, 'text-anchor': 'middle' },
      spec.x.label,
    ),
    svg(
      'text',
      {
        x: 0,
        y: 0,
        'text-anchor': 'middle',
        transform: `translate(11 ${(EDGE.top + bottom) / 2}) rotate(-90)`,
      },
      spec.y.label,
    ),
  );
  if (spec.y.keep) {
    canvas.append(
      svg('rect', {
        class: 'keeps-up',
        x: EDGE.left,
        y: y.at(spec.y.keep),
        width: right - EDGE.left,
        height: bottom - y.at(spec.y.keep),
      }),
      svg('text', { class: 'faint', x: EDGE.left + 5, y: y.at(spec.y.keep) + 14 }, 'keeps up'),
      svg('line', {
        class: 'real-time',
        x1: EDGE.left,
        x2: right,
        y1: y.at(spec.y.keep),
        y2: y.at(spec.y.keep),
      }),
      svg(
        'text',
        { class: 'bad', x: right, y: y.at(spec.y.keep) - 4, 'text-anchor': 'end' },
        'real time',
      ),
    );
  }
  const series = new Map();
  for (const p of points) {
    const key = seriesKey(p.cell);
    if (!series.has(key)) series.set(key, []);
    series.get(key).push(p);
  }
  const isCrowded = series.size > 4 && !isWide; // then the legend serves better than a heap of labels
  const taken = points.map((p) => ({ x: x.at(p.x) - 6, y: y.at(p.at) - 6, w: 12, h: 12 }));
  const crossed = []; // what the lines cover: a label avoids it where it can
  const front = spec.hasFront ? stairs(points, x, y, EDGE.top, right) : [];
  if (front.length) {
    canvas.append(svg('polyline', { class: 'front', points: front.map(String).join(' ') }));
    for (let n = 1; n < front.length; n++) {
      const [[a, b], [c, d]] = [front[n - 1], front[n]];
      crossed.push({
        x: Math.min(a, c) - 1,
        y: Math.min(b, d) - 1,
        w: Math.abs(c - a) + 2,
        h: Math.abs(d - b) + 2,
      });
    }
  }
  const marks = [];
  const labels = [];
  for (const list of series.values()) {
    list.sort((a, b) => (a.cell.chunk_s ?? 0) - (b.cell.chunk_s ?? 0));
    if (list.length > 1) {
      canvas.append(
        svg('polyline', {
          fill: 'none',
          stroke: colour(list[0].cell),
          'stroke-width': spec.hasFront ? 0.8 : 1.6,
          'stroke-dasharray': DASHES[variantAt(list[0].cell)] || null,
          points: list.map((p) => `${x.at(p.x)},${y.at(p.at)}`).join(' '),
        }),
      );
      for (let n = 1; n < list.length; n++) {
        const [a, b] = [list[n - 1], list[n]];
        for (let part = 0; part <= 40; part++) {
          const px = x.at(a.x) + ((x.at(b.x) - x.at(a.x)) * part) / 40;
          const py = y.at(a.at) + ((y.at(b.at) - y.at(a.at)) * part) / 40;
          crossed.push({ x: px - 1, y: py - 1, w: 2, h: 2 });
        }
      }
    }
    for (const p of list) {
      if (!isCut(p) && p.real === p.x) canvas.append(...whiskers(p, x, y, spec, tint(p)));
      const at = data.cells.indexOf(p.cell);
      const words =
        `${p.cell.label} ${chunkText(p.cell)}: ${spec.y.name} ${format(p.y)}, ` +
        `${spec.x.name} ${spec.x.text ? spec.x.text(p.real) : format(p.real)}` +
        (isBeaten(p) ? '; another run is better in both' : '');
      const open = () => {
        if (hasTimelines(at)) actions.choose(at);
      };
      if (p.late !== null) {
        const [from, to] = [x.at(p.x), x.at(Math.min(p.late, end ?? p.late))];
        canvas.append(
          svg(
            'g',
            { class: 'late' },
            svg('title', {}, `${p.cell.label} ${chunkText(p.cell)}: p90 ${format(p.late, 2)} s`),
            svg('line', { x1: from, x2: to, y1: y.at(p.at), y2: y.at(p.at), stroke: tint(p) }),
            svg('circle', { cx: to, cy: y.at(p.at), r: 4, stroke: tint(p) }),
          ),
        );
        taken.push({ x: to - 5, y: y.at(p.at) - 5, w: 10, h: 10 });
      }
      marks.push(
        svg(
          'g',
          {
            class: isBeaten(p) ? 'point beaten' : 'point',
            tabindex: 0,
            role: 'button',
            'aria-label': words,
            'data-cell': p.cell.name,
            onclick: open,
            onkeydown: (event) => {
              if (event.key === 'Enter' || event.key === ' ') {
                event.preventDefault();
                open();
              }
            },
          },
          svg('title', {}, words),
          marker(p.cell, x.at(p.x), y.at(p.at), 5, isBeaten(p)),
        ),
      );
    }
    labels.push(...spec.labels(list, isCrowded));
  }
  canvas.append(...marks);
  for (const { point, text } of labels) {
    const w = widthOf(text);
    const px = x.at(point.x);
    const py = y.at(point.at);
    const spots = [
      [px + 9, py - 6],
      [px - 9 - w, py - 6],
      [px - w / 2, py - 22],
      [px - w / 2, py + 8],
      [px + 6, py - 20],
      [px + 6, py + 7],
      [px - 6 - w, py + 7],
      [px - 6 - w, py - 20],
      [px - w / 2, py - 34],
      [px - w / 2, py + 22],
      [px + 16, py - 32],
      [px + 16, py + 20],
      [px - 16 - w, py - 32],
      [px - 16 - w, py + 20],
    ];
    const allowed = spots
      .map(([left, above]) => ({ x: left, y: above, w, h: 14 }))
      .filter(
        (box) =>
          box.x > EDGE.left &&
          box.x + w < width - 2 &&
          box.y > 0 &&
          box.y + 14 < bottom &&
          !taken.some((other) => overlaps(box, other)),
      );
    const spot =
      allowed.find((box) => !crossed.some((other) => overlaps(box, other))) ??
      (isCrowded ? null : allowed[0]);
    if (!spot) continue;
    taken.push(spot);
    const label = svg('text', { class: 'label', x: spot.x, y: spot.y + 11 }, text);
    // A grey run's label keeps its method's colour: it tells whose it is.
    label.style.fill = colour(point.cell);
    canvas.append(label);
  }
  return el('figure', { class: isWide ? 'wide' : null }, title, canvas, caption);
}

const metric = (name) => (cell) => cell.metrics[name] ?? null;
const chunkAxis = {
  name: 'chunk',
  label: 'Chunk (ms, log scale)',
  log: true,
  value: (cell) => (cell.chunk_s === null ? null : cell.chunk_s * 1000),
  text: (value) => String(+value.toFixed(1)),
  ticks: (points) => [...new Set(points.map((p) => p.x))].sort((a, b) => a - b),
};
const chunks = (list, isCrowded) =>
  list
    .filter((_, n) => !isCrowded || n === 0 || n === list.length - 1)
    .map((point, n, drawn) => ({
      point,
      text:
        (n < drawn.length - 1 ? '' : short(point.cell.label, 24) + ' ') +
        chunkText(point.cell) +
        (point.at < point.y ? `: ${format(point.y, 0)} %` : '') +
        (point.x < point.real ? `: ${format(point.real, 0)} s` : ''),
    }));
const seriesName = (list) => [{ point: list[list.length - 1], text: list[0].cell.label }];
const latency = (percent) => `word_latency_committed_p${percent}_${data.clock}_s`;
const onAudio = data.clock === 'cu' ? ', audio only' : ''; // where no run knows its compute
const FIGURES = [
  {
    title: 'Word error rate against word latency',
    labels: chunks,
    hasFront: true,
    note:
      'Lower left is better. Each point is one run, its chunk next to it; the box is its ' +
      '95 % interval. Grey: another run of this data is better in both; the stairs join the rest.',
    x: {
      name: 'latency',
      label: `Final after, median (s${onAudio})`,
      value: metric(latency(50)),
      text: (v) => v.toFixed(2),
      metric: latency(50),
      late: metric(latency(90)),
    },
    y: { name: 'WER', label: 'WER (%)', value: metric('wer'), metric: 'wer' },
  },
  {
    title: 'Errors visible while speaking, against chunk size',
    labels: seriesName,
    note: 'Lower is better: the screen every 100 ms against what was spoken by then.',
    x: chunkAxis,
    y: {
      name: 'errors visible',
      label: `Errors visible (%${onAudio || ', with compute'})`,
      value: metric(`arwer_grid_${data.clock}`),
    },
  },
  {
    title: 'Compute: real-time factor against chunk size',
    labels: seriesName,
    note: 'Lower is better; above the dashed line the machine cannot keep up.',
    x: chunkAxis,
    y: {
      name: 'RTF',
      label: 'RTF, compute / audio (log scale)',
      log: true,
      keep: 1,
      value: metric('rtf_total'),
    },
  },
];

/* -- word latency taken apart: a bar a run ---------------------------------------------------- */

const PARTS = [
  ['fill', 'chunk fills'],
  ['lookahead', 'look-ahead'],
  ['policy', 'held back'],
  ['queue', 'queue'],
  ['compute', 'compute'],
];
const BAR = 17;

const sum = (values) => values.reduce((total, value) => total + value, 0);

const barName = ({ cell }) => `${short(cell.label, isNarrow ? 9 : 16)} ${chunkText(cell)}`;

function stacks(cells) {
  const rows = cells
    .map((cell) => ({
      cell,
      parts: PARTS.map(([name]) => cell.metrics[`word_latency_${name}_mean_ca_s`] ?? null),
    }))
    .filter((row) => !row.parts.includes(null));
  if (!rows.length) return null;
  const far = data.farthest[rows[0].cell.split];
  const farthest = (row) => {
    const total = sum(row.parts.map((v) => Math.max(v, 0)));
    return far !== null && total > far ? far : total;
  };
  const left = Math.max(...rows.map((row) => widthOf(barName(row)))) + 10;
  const height = 24 + rows.length * BAR + 30;
  const x = scale(
    rows.flatMap((row) => [farthest(row), sum(row.parts.map((v) => Math.min(v, 0)))]),
    { ticks: null },
    left,
    WIDTH - 48,
  );
  const canvas = svg('svg', {
    viewBox: `0 0 ${WIDTH} ${height}`,
    role: 'img',
    'aria-label': 'Mean word latency of each run, by what the word waited for',
  });
  for (const tick of x.ticks) {
    canvas.append(
      svg('line', { class: 'grid', x1: x.at(tick), x2: x.at(tick), y1: 8, y2: height - 44 }),
      svg(
        'text',
        { class: 'faint', x: x.at(tick), y: height - 28, 'text-anchor': 'middle' },
        format(tick),
      ),
    );
  }
  canvas.append(
    svg(
      'text',
      { x: (left + WIDTH - 48) / 2, y: height - 8, 'text-anchor': 'middle' },
      'Final after, mean (s)',
    ),
  );
  rows.forEach((row, at) => {
    const { cell, parts } = row;
    const y = 10 + at * BAR;
    const name = `${cell.label} ${chunkText(cell)}`;
    const facts = PARTS.map(([, text], n) => `${text} ${parts[n].toFixed(3)} s`);
    const group = svg(
      'g',
      { class: 'stack' },
      svg('title', {}, `${name}\n${facts.join('\n')}`),
      svg('text', { x: left - 8, y: y + 10, 'text-anchor': 'end' }, barName(row)),
    );
    let [below, above] = [0, 0];
    parts.forEach((value, n) => {
      const from = value < 0 ? (below += value) : above;
      if (value > 0) above += value;
      const [begin, stop] = [from, from + Math.abs(value)].map((s) =>
        x.at(Math.min(s, farthest(row))),
      );
      group.append(
        svg('rect', {
          x: begin,
          y,
          height: BAR - 5,
          fill: `var(--p${n})`,
          width: Math.max(stop - begin, 0),
        }),
      );
    });
    group.append(
      svg(
        'text',
        { class: 'faint', x: x.at(Math.min(above, farthest(row))) + 5, y: y + 10 },
        `${sum(parts).toFixed(2)} s`,
      ),
    );
    canvas.append(group);
  });
  const key = el(
    'ul',
    { class: 'legend' },
    ...PARTS.map(([, text], n) => {
      const swatch = el('span', { class: 'swatch' });
      swatch.style.background = `var(--p${n})`;
      return el('li', {}, swatch, text);
    }),
  );
  return el(
    'figure',
    {},
    el('h3', {}, 'What a word waits for'),
    key,
    canvas,
    el(
      'figcaption',
      {},
      'From the end of the spoken word to its commit: until the chunk is full, ' +
        'for the audio past it, until the method lets it go, for the step before, and to compute.',
    ),
  );
}

export function drawFigures() {
  const cells = visibleCells();
  const parts = [];
  const hasLate = cells.some((cell) => cell.metrics[latency(90)] != null);
  if (hasLate) {
    parts.push(
      el(
        'label',
        {},
        el('input', {
          type: 'checkbox',
          id: 'late',
          checked: state.late ? '' : null,
          onchange: (event) => {
            remember({ late: event.target.checked ? '1' : '' });
            drawFigures();
            byId('late').focus();
          },
        }),
        ' p90 of the latency next to the median',
      ),
    );
  }
  const legend = el('ul', { class: 'legend', 'aria-label': 'Legend' });
  for (const key of new Set(cells.filter((cell) => !cell.error).map(seriesKey))) {
    const cell = cells.find((each) => seriesKey(each) === key);
    legend.append(
      el(
        'li',
        {},
        svg(
          'svg',
          { viewBox: '0 0 34 14', 'aria-hidden': 'true' },
          svg('line', {
            x1: 0,
            x2: 34,
            y1: 7,
            y2: 7,
            stroke: colour(cell),
            'stroke-width': 1.6,
            'stroke-dasharray': DASHES[variantAt(cell)] || null,
          }),
          marker(cell, 17, 7),
        ),
        key,
      ),
    );
  }
  if (!cells.length) parts.push(nothing());
  else parts.push(legend);
  for (const split of splits) {
    const here = cells.filter((cell) => cell.split === split && !cell.error);
    if (!here.length) continue;
    if (splits.length > 1) parts.push(el('h3', {}, 'Data: ' + (split || 'unnamed')));
    const drawn = [...FIGURES.map((spec) => chart(here, spec)), stacks(here)].filter(Boolean);
    parts.push(
      drawn.length
        ? el('div', { class: 'figures' }, ...drawn)
        : el(
            'p',
            { class: 'muted' },
            'Nothing to draw: these recordings have no reference, or their words no times.',
          ),
    );
  }
  byId('figures').replaceChildren(...parts);
}
