'use strict';
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

/* -- elements: text only ever enters as text nodes, so no transcript can become markup ------- */

function make(namespace, name, attributes, children) {
  const node = namespace ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(key, value);
    }
  }
  for (const child of children || []) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}
const el = (name, attributes, ...children) => make(false, name, attributes, children);
const svg = (name, attributes, ...children) => make(true, name, attributes, children);

/** Says below a part that is wider than the screen that it scrolls. */
function cue(node) {
  const tell = () => node.classList.toggle('more', node.scrollWidth > node.clientWidth + 4);
  requestAnimationFrame(tell);
  if (!node.dataset.cued) addEventListener('resize', tell);
  node.dataset.cued = '1';
}

/* -- state, kept in the address so that a view can be sent to someone ------------------------ */

const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
function remember(changes) {
  Object.assign(state, changes);
  for (const key of Object.keys(state)) if (!state[key]) delete state[key];
  try {
    history.replaceState(null, '', '#' + new URLSearchParams(state));
  } catch { /* a viewer that forbids it loses only the link */ }
}

/* -- theme ----------------------------------------------------------------------------------- */

const THEMES = ['auto', 'light', 'dark'];
function setTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId('theme').textContent = 'Theme: ' + theme;
  remember({ theme: theme === 'auto' ? '' : theme });
}
byId('theme').addEventListener('click', () => {
  setTheme(THEMES[(THEMES.indexOf(state.theme || 'auto') + 1) % THEMES.length]);
});
setTheme(THEMES.includes(state.theme) ? state.theme : 'auto');

/* -- one colour a method, one shape and dash a variant of it --------------------------------- */

// Known methods keep their colour in every report, whoever else is in it; 7 is the grey one,
// 8 the ink.
const KNOWN = { whisperrt: 0, ufal: 1, simul_whisper: 2, hush_word: 3, star: 4, u2: 5,
  chunkformer: 6, offline: 7, reencode: 8 };
const methods = [...new Set(data.cells.map((cell) => cell.method))];
const free = [0, 1, 2, 3, 4, 5, 6].filter((at) => !methods.some((name) => KNOWN[name] === at));
const hues = {};
for (const name of methods) hues[name] = KNOWN[name] ?? free.shift() ?? 7;
const colour = (cell) => `var(--c${hues[cell.method]})`;
const SHAPES = ['circle', 'square', 'triangle', 'diamond', 'cross'];
const DASHES = ['', '6 3', '2 3', '8 3 2 3', '12 4'];
const seriesKey = (cell) => cell.label;
const variants = {};
for (const cell of data.cells) {
  const list = (variants[cell.method] ??= []);
  if (!list.includes(cell.variant)) list.push(cell.variant);
}
const variantAt = (cell) => variants[cell.method].indexOf(cell.variant) % SHAPES.length;

function marker(cell, x, y, size, isGrey) {
  const fill = { fill: isGrey ? 'var(--beaten)' : colour(cell),
    stroke: isGrey ? colour(cell) : 'var(--ground)', 'stroke-width': 1 };
  const s = size || 5;
  const path = {
    square: `M${x - s},${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
    triangle: `M${x},${y - s * 1.2}l${s * 1.2},${s * 2.1}h${-s * 2.4}z`,
    diamond: `M${x},${y - s * 1.3}l${s * 1.3},${s * 1.3}l${-s * 1.3},${s * 1.3}` +
      `l${-s * 1.3},${-s * 1.3}z`,
    cross: `M${x - s},${y - 1.8}h${s - 1.8}v${1.8 - s}h3.6v${s - 1.8}h${s - 1.8}v3.6h${1.8 - s}` +
      `v${s - 1.8}h-3.6v${1.8 - s}h${1.8 - s}z`,
  }[SHAPES[variantAt(cell)]];
  return path ? svg('path', { d: path, ...fill }) : svg('circle', { cx: x, cy: y, r: s, ...fill });
}

const format = (value, digits) => {
  if (value === null || value === undefined) return '–';
  if (digits !== null && digits !== undefined) return value.toFixed(digits);
  return Number.isInteger(value) ? String(value) : String(+value.toPrecision(4));
};
const chunkText = (cell) => cell.chunk;

function intervalText(cell, column) {
  const range = cell.intervals[column.name];
  if (!range) return null;
  const [low, high] = range.map((value) => format(value, column.digits));
  return `95 % interval ${low} to ${high}, over ${cell.drawn}`;
}

/* -- the table ------------------------------------------------------------------------------- */

const splits = [...new Set(data.cells.map((cell) => cell.split))];
const textColumns = [
  { name: 'label', heading: 'Method', value: (cell) => cell.label, text: true },
  { name: 'chunk', heading: 'Chunk', value: (cell) => cell.chunk_s, title: 'audio per step' },
  { name: 'split', heading: 'Data', value: (cell) => cell.split, text: true },
].filter((column) => column.name !== 'split' || splits.length > 1);
const numberColumns = data.columns.map((column) => ({
  ...column, value: (cell) => cell.metrics[column.name] ?? null,
}));
byId('split').parentElement.style.display = splits.length > 1 ? '' : 'none';
byId('split').append(el('option', { value: '' }, 'all'),
  ...splits.map((split) => el('option', { value: split }, split || 'unnamed')));

function visibleCells() {
  const wanted = (state.filter || '').toLowerCase().split(/\s+/).filter(Boolean);
  return data.cells.filter((cell) => {
    if (state.split && cell.split !== state.split) return false;
    const text = [cell.name, cell.label, chunkText(cell), cell.split, cell.error || '',
      ...cell.notes].join(' ').toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

function sorted(cells, columns) {
  const [name, direction] = (state.sort || '').split(':');
  const column = columns.find((each) => each.name === name);
  if (!column) return cells;
  const sign = direction === 'desc' ? -1 : 1;
  return [...cells].sort((one, other) => {
    const a = column.value(one);
    const b = column.value(other);
    // What was not measured stays last in both directions.
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === 'string' ? a.localeCompare(b) : a - b);
  });
}

const groups = [...new Set(numberColumns.map((column) => column.group))];
byId('all').append(el('option', { value: '' }, 'headline'),
  ...groups.map((group) => el('option', { value: group }, group)),
  el('option', { value: '1' }, 'all'));

/** The columns chosen, less those of which no run has a number. */
function shownColumns(cells) {
  const asked = numberColumns.filter((column) => state.all === '1' ||
    (state.all ? column.group === state.all : column.headline));
  const known = asked.filter((column) => cells.some((cell) => column.value(cell) !== null));
  return known.length ? known : asked.slice(0, 1);
}
const runs = (n) => n === 1 ? '1 run' : `${n} runs`;
/** What a filter that leaves nothing says, with the way back. */
const nothing = () => el('p', { class: 'muted nothing' }, `No run matches “${state.filter || ''}”` +
  `${state.split ? ' in ' + state.split : ''}. `, el('button', { type: 'button', onclick: () => {
  byId('filter').value = byId('split').value = '';
  narrow({ filter: '', split: '' });
} }, 'Show all'));

const MOST_COLUMNS = 16; // of more metrics each is a row and each run a column
function valueCell(cell, column, best, worse) {
  const value = column.value(cell);
  const key = cell.split + '\n' + column.name;
  const wins = value !== null && worse[key] && value === best[key];
  return el('td', { class: wins ? 'best' : null, title: intervalText(cell, column) },
    cell.texts[column.name] ?? format(value, column.digits));
}

/** The table with a row for each metric, under the names of their groups. */
function drawTransposed(cells, shown, best, worse) {
  const nameOf = (cell) => [cell.label, chunkText(cell), splits.length > 1 ? cell.split : '']
    .filter(Boolean).join(' ');
  const head = el('tr', {}, el('th', { scope: 'col', class: 'text' }, 'Metric'),
    ...cells.map((cell) => el('th', { scope: 'col' }, nameOf(cell))));
  const rows = groups.flatMap((group) => {
    const mine = shown.filter((column) => column.group === group);
    return mine.length ? [el('tr', {}, el('th', { class: 'text', colspan: cells.length + 1 }, group)),
      ...mine.map((column) => el('tr', {},
        el('td', { class: 'text label', title: column.title }, column.heading.replace('\n', ' ')),
        ...cells.map((cell) => valueCell(cell, column, best, worse))))] : [];
  });
  byId('results').classList.add('transposed');
  byId('results').replaceChildren(el('thead', {}, head), el('tbody', {}, ...rows));
  byId('count').textContent = `${runs(cells.length)}, ${shown.length} metrics`;
  byId('notes').textContent = '';
  cue(byId('results').parentElement);
}

function drawTable() {
  const cells = visibleCells();
  const shown = shownColumns(cells);
  const columns = [...textColumns, ...shown];
  const best = {};
  const worse = {}; // where all are equal, none is best
  for (const cell of cells) {
    for (const column of shown) {
      const value = column.value(cell);
      const key = cell.split + '\n' + column.name;
      if (value === null || !column.better || cell.odd) continue;
      const wins = column.better === 'lower' ? value < best[key] : value > best[key];
      if (key in best && value !== best[key]) worse[key] = true;
      if (!(key in best) || wins) best[key] = value;
    }
  }
  // What all runs are told stands once, below the table.
  const common = cells.length ? cells[0].notes.filter((note) =>
    cells.every((cell) => cell.notes.includes(note))) : [];
  const told = (cell) => [...(cell.error ? ['failed: ' + cell.error] : []),
    ...cell.notes.filter((note) => !common.includes(note))].join('; ');
  const hasNotes = cells.some(told);
  const [sortName, sortDirection] = (state.sort || '').split(':');
  const order = (column) => column.name !== sortName ? 'none'
    : sortDirection === 'desc' ? 'descending' : 'ascending';
  if (shown.length > MOST_COLUMNS) return drawTransposed(cells, shown, best, worse);
  byId('results').classList.remove('transposed');
  const head = el('tr', {}, ...columns.map((column) => el('th',
    { scope: 'col', 'aria-sort': order(column), class: column.text ? 'text' : null,
      title: column.title },
    el('button', { type: 'button', 'data-sort': column.name, onclick: () => {
      const next = order(column) === 'ascending' ? 'desc' : 'asc';
      remember({ sort: `${column.name}:${next}` });
      drawTable();
      byId('results').querySelector(`[data-sort="${CSS.escape(column.name)}"]`).focus();
    } }, column.heading))), hasNotes ? el('th', { scope: 'col', class: 'text' }, 'Notes') : null);
  const rows = sorted(cells, columns).map((cell) => {
    const notes = told(cell);
    const at = data.cells.indexOf(cell);
    const name = hasTimelines(at)
      ? el('button', { type: 'button', title: 'show its utterances', onclick: () => choose(at) },
        cell.label + (cell.best ? ' *' : ''))
      : el('span', {}, cell.label + (cell.best ? ' *' : ''));
    const swatch = el('span', { class: 'swatch' });
    swatch.style.background = colour(cell);
    return el('tr', { 'data-cell': cell.name,
      class: [cell.error ? 'failed' : '', cell.best ? 'first' : '', String(at) === state.cell ? 'selected' : '']
        .join(' ').trim() || null },
      el('td', { class: 'text label', title: cell.name }, swatch, name),
      el('td', {}, chunkText(cell)),
      splits.length > 1 ? el('td', { class: 'text' }, cell.split) : null,
      ...shown.map((column, n) => {
        // In the first column, since the notes may be a long way to the right.
        if (cell.error && !n) return el('td', {}, 'failed');
        return valueCell(cell, column, best, worse);
      }),
      hasNotes ? el('td', { class: 'notes' }, notes) : null);
  });
  const none = el('tr', {}, el('td', { class: 'text', colspan: columns.length + 1 }, nothing()));
  byId('results').replaceChildren(el('thead', {}, head),
    el('tbody', {}, ...(rows.length ? rows : [none])));
  byId('count').textContent = cells.length === data.cells.length ? runs(cells.length)
    : `${cells.length} of ${runs(data.cells.length)}`;
  byId('notes').textContent = common.length
    ? `${cells.length > 1 ? 'All runs: ' : ''}${common.join('; ')}.` : '';
  cue(byId('results').parentElement);
}

/* -- figures --------------------------------------------------------------------------------- */

const isNarrow = matchMedia('(max-width: 40rem)').matches; // drawn as wide as shown: type keeps its size
const WIDTH = isNarrow ? 330 : 460;
const HEIGHT = 310;
const pen = document.createElement('canvas').getContext('2d');
pen.font = `12px ${getComputedStyle(document.body).fontFamily}`; // as the style has it for figures
const widthOf = (text) => pen.measureText(text).width;
const EDGE = { left: 50, right: 18, top: 14, bottom: 42 };

function linearTicks(low, high, count) {
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
  const at = (v) => from + (f(v) - f(low)) / (f(high) - f(low)) * (to - from);
  return { at, ticks };
}

const overlaps = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

const range = (axis, cell) => axis.metric ? cell.intervals[axis.metric] : null;

/** The 95 % intervals of one point, where its axes have any: a box of both, or a line of one. */
function whiskers(p, x, y, spec, stroke) {
  const line = (a, b, c, d) => svg('line', { class: 'whisker', x1: a, x2: b, y1: c, y2: d,
    stroke });
  const [across, along] = [range(spec.x, p.cell), range(spec.y, p.cell)];
  if (across && along) {
    return [svg('rect', { class: 'box', x: x.at(across[0]), y: y.at(along[1]),
      width: x.at(across[1]) - x.at(across[0]), height: y.at(along[0]) - y.at(along[1]),
      stroke, fill: stroke })];
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
  const points = cells.map((cell) => ({ cell, x: spec.x.value(cell), y: spec.y.value(cell),
    late: late(cell) }))
    .filter((p) => p.x !== null && p.y !== null && (!spec.x.log || p.x > 0) &&
      (!spec.y.log || p.y > 0));
  const missing = cells.filter((cell) => !cell.error).length - points.length;
  const caption = el('figcaption', {}, spec.note + (missing > 0
    ? ` Not drawn, for want of a number: ${missing}.` : ''));
  const title = el('h3', {}, spec.title);
  // Against one chunk there is nothing to see that the table does not say.
  const isOneChunk = spec.x === chunkAxis && new Set(points.map((p) => p.x)).size < 2;
  if (!points.length || isOneChunk) return null;
  // A few runs far above the rest stand at the edge, with their number beside them.
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
  const tint = (p) => isBeaten(p) ? 'var(--beaten)' : colour(p.cell);
  const isWide = spec.hasFront && points.length > 4 && matchMedia('(min-width: 60rem)').matches;
  const [width, height] = isWide ? [1140, 1.5 * HEIGHT] : [WIDTH, HEIGHT];
  const right = width - EDGE.right;
  const bottom = height - EDGE.bottom;
  const xTicks = spec.x.ticks ? spec.x.ticks(points) : null;
  const spans = (axis, of) => [...points.flatMap((p) => [of(p), ...(range(axis, p.cell) || [])])];
  const across = [...spans(spec.x, (p) => p.x), ...points.map((p) => p.late ?? p.x)].map((v) => Math.min(v, end ?? v));
  const x = scale(across, { ...spec.x, cap: end, ticks: xTicks }, EDGE.left, right);
  const heights = spans(spec.y, (p) => p.at ?? p.y).map((v) => Math.min(v, cap ?? v));
  const y = scale(heights, { ...spec.y, cap, ticks: null }, bottom, EDGE.top);
  const canvas = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'group',
    'aria-label': `${spec.title}: ${spec.y.label} against ${spec.x.label}` });
  for (const tick of y.ticks) {
    canvas.append(
      svg('line', { class: 'grid', x1: EDGE.left, x2: right, y1: y.at(tick), y2: y.at(tick) }),
      svg('text', { class: 'faint', x: EDGE.left - 6, y: y.at(tick) + 4, 'text-anchor': 'end' },
        format(tick)));
  }
  let lastEnd = -Infinity;
  for (const tick of x.ticks) {
    const text = format(tick);
    const half = widthOf(text) / 2;
    canvas.append(svg('line', { class: 'grid', x1: x.at(tick), x2: x.at(tick), y1: bottom,
      y2: bottom + 4 }));
    if (x.at(tick) - half < lastEnd + 4) continue;
    lastEnd = x.at(tick) + half;
    canvas.append(svg('text', { class: 'faint', x: x.at(tick), y: bottom + 16,
      'text-anchor': 'middle' }, text));
  }
  canvas.append(
    svg('text', { x: (EDGE.left + right) / 2, y: height - 6, 'text-anchor': 'middle' },
      spec.x.label),
    svg('text', { x: 0, y: 0, 'text-anchor': 'middle',
      transform: `translate(11 ${(EDGE.top + bottom) / 2}) rotate(-90)` }, spec.y.label));
  if (spec.y.keep) {
    canvas.append(
      svg('rect', { class: 'keeps-up', x: EDGE.left, y: y.at(spec.y.keep),
        width: right - EDGE.left, height: bottom - y.at(spec.y.keep) }),
      svg('text', { class: 'faint', x: EDGE.left + 5, y: y.at(spec.y.keep) + 14 }, 'keeps up'),
      svg('line', { class: 'real-time', x1: EDGE.left, x2: right, y1: y.at(spec.y.keep),
        y2: y.at(spec.y.keep) }),
      svg('text', { class: 'bad', x: right, y: y.at(spec.y.keep) - 4, 'text-anchor': 'end' },
        'real time'));
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
      crossed.push({ x: Math.min(a, c) - 1, y: Math.min(b, d) - 1, w: Math.abs(c - a) + 2,
        h: Math.abs(d - b) + 2 });
    }
  }
  const marks = [];
  const labels = [];
  for (const list of series.values()) {
    list.sort((a, b) => (a.cell.chunk_s ?? 0) - (b.cell.chunk_s ?? 0));
    if (list.length > 1) {
      canvas.append(svg('polyline', { fill: 'none', stroke: colour(list[0].cell),
        'stroke-width': spec.hasFront ? 0.8 : 1.6, 'stroke-dasharray': DASHES[variantAt(list[0].cell)] || null,
        points: list.map((p) => `${x.at(p.x)},${y.at(p.at)}`).join(' ') }));
      for (let n = 1; n < list.length; n++) {
        const [a, b] = [list[n - 1], list[n]];
        for (let part = 0; part <= 40; part++) {
          const px = x.at(a.x) + (x.at(b.x) - x.at(a.x)) * part / 40;
          const py = y.at(a.at) + (y.at(b.at) - y.at(a.at)) * part / 40;
          crossed.push({ x: px - 1, y: py - 1, w: 2, h: 2 });
        }
      }
    }
    for (const p of list) {
      if (!isCut(p) && p.real === p.x) canvas.append(...whiskers(p, x, y, spec, tint(p)));
      const at = data.cells.indexOf(p.cell);
      const words = `${p.cell.label} ${chunkText(p.cell)}: ${spec.y.name} ${format(p.y)}, ` +
        `${spec.x.name} ${spec.x.text ? spec.x.text(p.real) : format(p.real)}` +
        (isBeaten(p) ? '; another run is better in both' : '');
      const open = () => { if (hasTimelines(at)) choose(at); };
      if (p.late !== null) {
        const [from, to] = [x.at(p.x), x.at(Math.min(p.late, end ?? p.late))];
        canvas.append(svg('g', { class: 'late' },
          svg('title', {}, `${p.cell.label} ${chunkText(p.cell)}: p90 ${format(p.late, 2)} s`),
          svg('line', { x1: from, x2: to, y1: y.at(p.at), y2: y.at(p.at), stroke: tint(p) }),
          svg('circle', { cx: to, cy: y.at(p.at), r: 4, stroke: tint(p) })));
        taken.push({ x: to - 5, y: y.at(p.at) - 5, w: 10, h: 10 });
      }
      marks.push(svg('g', { class: isBeaten(p) ? 'point beaten' : 'point', tabindex: 0, role: 'button', 'aria-label': words, 'data-cell': p.cell.name,
        onclick: open, onkeydown: (event) => {
          if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); open(); }
        } }, svg('title', {}, words), marker(p.cell, x.at(p.x), y.at(p.at), 5, isBeaten(p))));
    }
    labels.push(...spec.labels(list, isCrowded));
  }
  canvas.append(...marks);
  for (const { point, text } of labels) {
    const w = widthOf(text);
    const px = x.at(point.x);
    const py = y.at(point.at);
    const spots = [[px + 9, py - 6], [px - 9 - w, py - 6], [px - w / 2, py - 22],
      [px - w / 2, py + 8], [px + 6, py - 20], [px + 6, py + 7], [px - 6 - w, py + 7],
      [px - 6 - w, py - 20], [px - w / 2, py - 34], [px - w / 2, py + 22], [px + 16, py - 32],
      [px + 16, py + 20], [px - 16 - w, py - 32], [px - 16 - w, py + 20]];
    const allowed = spots.map(([left, top]) => ({ x: left, y: top, w, h: 14 })).filter((box) =>
      box.x > EDGE.left && box.x + w < width - 2 && box.y > 0 && box.y + 14 < bottom &&
      !taken.some((other) => overlaps(box, other)));
    const spot = allowed.find((box) => !crossed.some((other) => overlaps(box, other))) ??
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
  name: 'chunk', label: 'Chunk (ms, log scale)', log: true,
  value: (cell) => cell.chunk_s === null ? null : cell.chunk_s * 1000,
  text: (value) => String(+value.toFixed(1)),
  ticks: (points) => [...new Set(points.map((p) => p.x))].sort((a, b) => a - b),
};
const chunks = (list, isCrowded) => list
  .filter((_, n) => !isCrowded || n === 0 || n === list.length - 1)
  .map((point, n, drawn) => ({ point, text: (n < drawn.length - 1 ? '' :
    short(point.cell.label, 24) + ' ') + chunkText(point.cell) +
    (point.at < point.y ? `: ${format(point.y, 0)} %` : '') +
    (point.x < point.real ? `: ${format(point.real, 0)} s` : '') }));
const seriesName = (list) => [{ point: list[list.length - 1], text: list[0].cell.label }];
const FIGURES = [
  { title: 'Word error rate against word latency', labels: chunks, hasFront: true,
    note: 'Lower left is better. Each point is one run, its chunk next to it; the box is its ' +
      '95 % interval. Grey: another run of this data is better in both; the stairs join the rest.',
    x: { name: 'latency', label: 'Committed word latency, median (s)',
      value: metric('word_latency_committed_p50_ca_s'), text: (v) => v.toFixed(2),
      metric: 'word_latency_committed_p50_ca_s', late: metric('word_latency_committed_p90_ca_s') },
    y: { name: 'WER', label: 'WER (%)', value: metric('wer'), metric: 'wer' } },
  { title: 'What is on screen: ARWER against chunk size', labels: seriesName,
    note: 'Lower is better: the screen every 100 ms against what was spoken by then.',
    x: chunkAxis,
    y: { name: 'ARWER', label: 'Grid ARWER (%, with compute)', value: metric('arwer_grid_ca') } },
  { title: 'Compute: real-time factor against chunk size', labels: seriesName,
    note: 'Lower is better; above the dashed line the machine cannot keep up.',
    x: chunkAxis,
    y: { name: 'RTF', label: 'RTF, compute / audio (log scale)', log: true, keep: 1,
      value: metric('rtf_total') } },
];

/* -- word latency taken apart: a bar a run ---------------------------------------------------- */

const PARTS = [['fill', 'chunk fills'], ['lookahead', 'look-ahead'], ['policy', 'held back'],
  ['queue', 'queue'], ['compute', 'compute']];
const BAR = 17;

function stacks(cells) {
  const rows = cells.map((cell) => ({ cell,
    parts: PARTS.map(([name]) => cell.metrics[`word_latency_${name}_mean_ca_s`] ?? null) }))
    .filter((row) => !row.parts.includes(null));
  if (!rows.length) return null;
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const far = data.farthest[rows[0].cell.split];
  const farthest = (row) => {
    const total = sum(row.parts.map((v) => Math.max(v, 0)));
    return far !== null && total > far ? far : total;
  };
  const nameOf = ({ cell }) => `${short(cell.label, isNarrow ? 9 : 16)} ${chunkText(cell)}`;
  const left = Math.max(...rows.map((row) => widthOf(nameOf(row)))) + 10;
  const height = 24 + rows.length * BAR + 30;
  const x = scale(rows.flatMap((row) => [farthest(row),
    sum(row.parts.map((v) => Math.min(v, 0)))]), { ticks: null }, left, WIDTH - 48);
  const canvas = svg('svg', { viewBox: `0 0 ${WIDTH} ${height}`, role: 'img',
    'aria-label': 'Mean word latency of each run, by what the word waited for' });
  for (const tick of x.ticks) {
    canvas.append(
      svg('line', { class: 'grid', x1: x.at(tick), x2: x.at(tick), y1: 8, y2: height - 44 }),
      svg('text', { class: 'faint', x: x.at(tick), y: height - 28, 'text-anchor': 'middle' },
        format(tick)));
  }
  canvas.append(svg('text', { x: (left + WIDTH - 48) / 2, y: height - 8, 'text-anchor': 'middle' },
    'Committed word latency, mean (s)'));
  rows.forEach((row, at) => {
    const { cell, parts } = row;
    const y = 10 + at * BAR;
    const name = `${cell.label} ${chunkText(cell)}`;
    const told = PARTS.map(([, text], n) => `${text} ${parts[n].toFixed(3)} s`);
    const group = svg('g', { class: 'stack' }, svg('title', {}, `${name}\n${told.join('\n')}`),
      svg('text', { x: left - 8, y: y + 10, 'text-anchor': 'end' },
        nameOf(row)));
    let [below, above] = [0, 0];
    parts.forEach((value, n) => {
      const from = value < 0 ? (below += value) : above;
      if (value > 0) above += value;
      const [begin, stop] = [from, from + Math.abs(value)].map((s) => x.at(Math.min(s, farthest(row))));
      group.append(svg('rect', { x: begin, y, height: BAR - 5, fill: `var(--p${n})`,
        width: Math.max(stop - begin, 0) }));
    });
    group.append(svg('text', { class: 'faint', x: x.at(Math.min(above, farthest(row))) + 5, y: y + 10 },
      `${sum(parts).toFixed(2)} s`));
    canvas.append(group);
  });
  const key = el('ul', { class: 'legend' }, ...PARTS.map(([, text], n) => {
    const swatch = el('span', { class: 'swatch' });
    swatch.style.background = `var(--p${n})`;
    return el('li', {}, swatch, text);
  }));
  return el('figure', {}, el('h3', {}, 'What a word waits for'), key, canvas,
    el('figcaption', {}, 'From the end of the spoken word to its commit: until the chunk is full, ' +
      'for the audio past it, until the method lets it go, for the step before, and to compute.'));
}

/* -- which runs differ: every pair of the best -------------------------------------------------- */

function differenceMatrix(split) {
  const of = data.matrices[split];
  if (!of) return null;
  const head = el('tr', {}, el('th', {}, 'row less column'),
    ...of.labels.map((_, n) => el('th', { scope: 'col' }, String(n + 1))));
  const rows = of.labels.map((label, n) => el('tr', {},
    el('th', { scope: 'row' }, `${n + 1}  ${label}`),
    ...of.differences[n].map((pair, m) => el('td', { class: pair && pair[1] ? 'sure' : 'muted',
      title: pair ? `${label} less ${of.labels[m]}` : null },
    pair ? (pair[0] > 0 ? '+' : '') + pair[0].toFixed(1) + (pair[1] ? ' *' : '') : ''))));
  return el('figure', {}, el('h3', {}, 'Which runs differ in WER'),
    el('div', { class: 'scroll' }, el('table', { class: 'matrix' }, el('thead', {}, head),
      el('tbody', {}, ...rows))),
    el('figcaption', {}, 'Differences in points. * p below 0.05 by sign flips, corrected by Holm ' +
      'for all pairs; the other differences are not significant.'));
}

function drawFigures() {
  const cells = visibleCells();
  const parts = [];
  const hasLate = cells.some((cell) => cell.metrics.word_latency_committed_p90_ca_s != null);
  if (hasLate) {
    parts.push(el('label', {}, el('input', { type: 'checkbox', id: 'late',
      checked: state.late ? '' : null,
      onchange: (event) => {
        remember({ late: event.target.checked ? '1' : '' });
        drawFigures();
        byId('late').focus();
      } }), ' p90 of the latency next to the median'));
  }
  const legend = el('ul', { class: 'legend', 'aria-label': 'Legend' });
  for (const key of new Set(cells.filter((cell) => !cell.error).map(seriesKey))) {
    const cell = cells.find((each) => seriesKey(each) === key);
    legend.append(el('li', {}, svg('svg', { viewBox: '0 0 34 14', 'aria-hidden': 'true' },
      svg('line', { x1: 0, x2: 34, y1: 7, y2: 7, stroke: colour(cell), 'stroke-width': 1.6,
        'stroke-dasharray': DASHES[variantAt(cell)] || null }), marker(cell, 17, 7)), key));
  }
  if (!cells.length) parts.push(nothing());
  else parts.push(legend);
  for (const split of splits) {
    const here = cells.filter((cell) => cell.split === split && !cell.error);
    if (!here.length) continue;
    if (splits.length > 1) parts.push(el('h3', {}, 'Data: ' + (split || 'unnamed')));
    const drawn = [...FIGURES.map((spec) => chart(here, spec)), stacks(here), differenceMatrix(split)]
      .filter(Boolean);
    parts.push(drawn.length ? el('div', { class: 'figures' }, ...drawn) : el('p', { class: 'muted' },
      'Nothing to draw: these recordings have no reference, or their words no times.'));
  }
  byId('figures').replaceChildren(...parts);
}

/* -- timelines: what was on the screen when -------------------------------------------------- */

const lines = new Map();
for (const line of data.timelines) {
  if (!lines.has(line.cell)) lines.set(line.cell, []);
  lines.get(line.cell).push(line);
}
const timelinesOf = (at) => lines.get(at) || [];
const hasTimelines = (at) => lines.has(at);
/** The sound as a data URL, from a block of its own that is read only here. */
const soundOf = (name) =>
  document.querySelector(`script[data-audio="${CSS.escape(name)}"]`).textContent;
const LEFT = 150;
const RIGHT = 78;
const LANE = isNarrow ? 760 : 1180;
const ROW = 21;
const LONG_S = 20; // a longer recording scrolls, at so many pixels a second
const LONG_SCALE = 60;
let player = null; // the utterance on show: its lanes, its audio, its time

/** The screen after each step: [time heard, time seen, text, n committed characters]. */
function screens(line) {
  let text = '';
  return line.steps.map(([heard, seen, kept, added, final]) => {
    text = text.slice(0, kept) + added;
    return { heard, seen, text, final };
  });
}

// A text that was aligned to time the words is no reference to count errors against.
const isLabelled = (line) => line.reference.trim() !== '' && data.cells[line.cell].labelled;

/** The words of a line against its reference: a wrong word underlined in waves, what it should be
 * struck out; without one against the other text, where they differ. */
function differences(line, other) {
  if (isLabelled(line)) {
    return line.rows.map((row) => el('span', {},
      row.word !== null && row.kind !== 'hit' ? el('del', { title: 'reference' }, row.word) : '',
      row.kind === 'substitution' ? ' ' : '',
      row.final === null ? '' : row.kind === 'hit' ? row.final
        : el('ins', { title: row.kind }, row.final), ' '));
  }
  const key = (word) => word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
  const said = (each) => each.rows.map((row) => row.final).filter((word) => word !== null);
  const mine = said(line);
  const theirs = said(other || line).map(key);
  const length = mine.map(() => new Array(theirs.length + 1).fill(0));
  length.push(new Array(theirs.length + 1).fill(0)); // of the longest common rest
  for (let i = mine.length - 1; i >= 0; i--) {
    for (let j = theirs.length - 1; j >= 0; j--) {
      length[i][j] = key(mine[i]) === theirs[j] ? length[i + 1][j + 1] + 1
        : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  let j = 0;
  return mine.map((word, i) => {
    while (j < theirs.length && key(word) !== theirs[j] && length[i][j + 1] === length[i][j]) j++;
    const isSame = j < theirs.length && key(word) === theirs[j];
    if (isSame) j++;
    return el('span', {}, isSame ? word : el('ins', { title: 'not in the other' }, word), ' ');
  });
}

function lane(line, clock, end) {
  const cell = data.cells[line.cell];
  const steps = screens(line);
  const when = (k) => clock === 'cu' ? steps[k].heard : steps[k].seen;
  const height = 24 + line.rows.length * ROW + 6;
  const isLong = end > LONG_S;
  const width = isLong ? LEFT + RIGHT + end * LONG_SCALE : LANE;
  const x = (s) => LEFT + s / end * (width - LEFT - RIGHT);
  const canvas = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img',
    width: isLong ? width : null,
    'aria-label': `${cell.label} ${chunkText(cell)}: when each word was spoken, shown, ` +
      'changed and committed' });
  for (const tick of linearTicks(0, end, isLong ? end / 2 : 12).ticks) {
    if (tick > end) continue;
    canvas.append(
      svg('line', { class: 'grid', x1: x(tick), x2: x(tick), y1: 20, y2: height }),
      svg('text', { class: 'faint', x: x(tick), y: 13, 'text-anchor': 'middle' }, `${tick} s`));
  }
  if (!isLong) {
    canvas.append(svg('text', { class: 'faint', x: LANE, y: 13, 'text-anchor': 'end' },
      isLabelled(line) || line.timed ? 'after end' : 'final at'));
  }
  const audioEnd = svg('line', { x1: x(line.duration_s), x2: x(line.duration_s), y1: 16,
    y2: height, stroke: 'var(--muted)', 'stroke-dasharray': '1 3' });
  audioEnd.append(svg('title', {}, `the audio ends at ${line.duration_s.toFixed(2)} s`));
  canvas.append(audioEnd);
  line.rows.forEach((row, at) => {
    const y = 24 + at * ROW + ROW / 2;
    const group = svg('g', {});
    // In a long recording a word stands at its time, where the scrolled view shows it.
    const first = Math.min(row.start ?? end, row.changes.length ? when(row.changes[0][0]) : end);
    const label = svg('text', { x: (isLong ? x(first) : LEFT) - 10, y: y + 4,
      'text-anchor': 'end' });
    const margin = (text, faint) => svg('text', { class: faint, y: y + 4,
      x: isLong ? x(Math.max(row.end, committed ?? 0)) + 10 : LANE,
      'text-anchor': isLong ? null : 'end' }, text);
    const short = (text) => text.length > 11 ? text.slice(0, 10) + '…' : text;
    const wrong = isLabelled(line) && row.kind !== 'hit';
    if (!wrong && row.final === null) return;
    if (row.word !== null && wrong) {
      label.append(svg('tspan', { class: 'struck' }, short(row.word)));
    }
    if (wrong && row.kind === 'substitution') label.append(' ');
    if (row.final !== null) label.append(svg('tspan', { class: wrong ? 'bad' : null },
      (wrong && row.kind === 'insertion' ? '+ ' : '') + short(row.final)));
    const told = [];
    if (row.word !== null && isLabelled(line)) told.push(`reference: ${row.word}`);
    if (row.final !== null) told.push(`final text: ${row.final}`);
    if (wrong) told.push(row.kind);
    group.append(label);
    if (row.start !== null) {
      told.push(`spoken ${row.start.toFixed(2)}–${row.end.toFixed(2)} s`);
      group.append(svg('rect', { x: x(row.start), y: y - 5, rx: 2, height: 10,
        width: Math.max(x(row.end) - x(row.start), 1.5), fill: 'var(--spoken)' }));
    }
    const committed = row.committed === null ? null : when(row.committed);
    const until = committed ?? end;
    row.changes.forEach(([k, text], n) => {
      const from = when(k);
      const to = n + 1 < row.changes.length ? when(row.changes[n + 1][0]) : until;
      told.push(`${from.toFixed(2)} s: ${n ? 'changed to' : 'first shown as'} ` +
        (text ? `“${text}”` : 'nothing'));
      const settled = n + 1 === row.changes.length;
      if (text && to > from) {
        group.append(svg('line', { x1: x(from), x2: x(to), y1: y, y2: y, stroke: colour(cell),
          'stroke-width': settled ? 2.5 : 1.5, 'stroke-dasharray': settled ? null : '2 3' }));
      }
      if (n) {
        group.append(svg('line', { x1: x(from), x2: x(from), y1: y - 6, y2: y + 6,
          stroke: 'var(--change)', 'stroke-width': 2.5 }));
      }
    });
    if (row.changes.length) {
      group.append(svg('circle', { cx: x(when(row.changes[0][0])), cy: y, r: 4,
        fill: 'var(--ground)', stroke: colour(cell), 'stroke-width': 1.8 }));
    }
    if (committed !== null) {
      told.push(`committed ${committed.toFixed(2)} s`);
      group.append(svg('path', { fill: colour(cell),
        d: `M${x(committed)},${y - 5.5}l5.5,5.5l-5.5,5.5l-5.5,-5.5z` }));
      if (row.kind === 'unjudged' && !line.timed) group.append(margin(`${committed.toFixed(2)} s`));
      else if (row.end !== null) {
        const late = committed - row.end;
        group.append(margin(`${late < 0 ? '−' : '+'}${Math.abs(late).toFixed(2)} s`,
          wrong ? 'faint' : null));
      }
    } else if (row.kind === 'deletion') {
      group.append(margin('missed', 'bad'));
    }
    group.append(svg('rect', { x: 0, y: y - ROW / 2, width, height: ROW,
      fill: 'transparent' }), svg('title', {}, told.join('\n')));
    canvas.append(group);
  });
  const cursor = svg('line', { class: 'cursor', y1: 16, y2: height });
  canvas.append(cursor);
  return {
    line, cell, canvas,
    show(t) {
      cursor.setAttribute('x1', x(t));
      cursor.setAttribute('x2', x(t));
      const view = canvas.parentElement;
      if (isLong && view) {
        const row = line.rows.findLastIndex((each) => each.start !== null && each.start <= t);
        view.scrollTo(x(t) - view.clientWidth / 2, 24 + row * ROW - view.clientHeight / 2);
      }
      let now = { text: '', final: 0 };
      steps.forEach((step, k) => { if (when(k) <= t) now = step; });
      return now;
    },
  };
}

const pick = (id, label, options, onchange) => el('label', {}, label + ' ',
  el('select', { id, onchange: (event) => onchange(event.target.value) }, ...options));
const cellText = (at) => {
  const cell = data.cells[at];
  return [cell.label, chunkText(cell), cell.split].filter(Boolean).join(' · ');
};
const short = (text, n) => text.length > n ? text.slice(0, n - 1) + '…' : text;

/** The text of a line with the times its pieces begin at; a click goes there. */
function transcript(line, go) {
  const told = (s) => `${Math.floor(s / 60)}:${(s % 60).toFixed(1).padStart(4, '0')}`;
  return el('ol', { class: 'said' }, ...line.said.map(([start, text]) => el('li', {},
    start === null ? '' : el('button', { type: 'button', onclick: () => go(start) }, told(start)),
    ' ' + text)));
}

function choose(at) {
  remember({ cell: String(at), t: '' });
  drawTable();
  drawTimelines();
  byId('timeline-title').scrollIntoView({ behavior: 'instant', block: 'start' });
}

const textOf = (line) => line.said.map(([, text]) => text).join(' ');

function drawTimelines() {
  if (player) player.stop();
  player = null;
  const shown = [...lines.keys()];
  if (!shown.length) {
    byId('timelines').replaceChildren(el('p', { class: 'muted' },
      'No event logs next to these results, or only recordings of more than 10 minutes: nothing to draw.'));
    return;
  }
  const first = data.shown_first.filter((each) => shown.includes(each));
  const at = state.cell && shown.includes(+state.cell) ? +state.cell : first[0] ?? shown[0];
  const own = timelinesOf(at);
  const wanted = (state.find || '').toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (each) => wanted.every((word) =>
    `${each.utt} ${each.speaker || ''} ${each.reference} ${each.why} ${textOf(each)}`.toLowerCase()
      .includes(word));
  const matching = own.filter(holds);
  const line = matching.find((each) => each.utt === state.utt) || matching[0] ||
    own.find((each) => each.utt === state.utt) || own[0];
  const others = data.timelines.filter((each) => each.utt === line.utt && each.cell !== at &&
    data.cells[each.cell].split === data.cells[at].split);
  const usual = others.find((each) => first.includes(each.cell)) || others[0];
  const other = state.with === 'none' ? undefined
    : others.find((each) => String(each.cell) === state.with) || usual;
  const clock = state.clock === 'cu' ? 'cu' : 'ca';
  const change = (key) => (value) => { remember({ [key]: value, t: '' }); drawTimelines(); };
  const option = (value, text, isSelected) => el('option', { value, selected: isSelected }, text);
  const controls = el('div', { class: 'controls' },
    pick('cell', 'Run', shown.map((k) => option(k, cellText(k), k === at)),
      (value) => choose(+value)),
    others.length ? pick('with', 'Beside', [option('none', 'no other', !other),
      ...others.map((each) => option(each.cell, cellText(each.cell), each === other))],
    change('with')) : null,
    pick('clock', 'Clock', [option('', 'with compute (as seen)', clock === 'ca'),
      option('cu', 'audio only', clock === 'cu')], change('clock')));
  const place = matching.indexOf(line);
  const turn = (by) => el('button', { type: 'button', id: by < 0 ? 'before' : 'next',
    'aria-label': by < 0 ? 'utterance before' : 'next utterance',
    disabled: !matching[place + by] && '', onclick: () => {
      change('utt')(matching[place + by].utt);
      byId(by < 0 ? 'before' : 'next').focus();
    } }, by < 0 ? '‹' : '›');
  const total = data.cells[at].details.n_utterances ?? own.length;
  const browse = el('div', { class: 'controls' },
    el('label', {}, 'Find ', el('input', { type: 'search', id: 'find', value: state.find || '',
      placeholder: 'words, name, speaker', oninput: (event) => {
        const caret = event.target.selectionStart;
        change('find')(event.target.value);
        byId('find').focus();
        byId('find').setSelectionRange(caret, caret);
      } })),
    pick('utt', 'Utterance', matching.map((each) => option(each.utt,
      [short(each.utt, 28), each.why || short(each.reference || textOf(each), 40)].join(': '),
      each === line)), change('utt')), turn(-1), turn(1),
    el('span', { class: 'muted', id: 'matches', role: 'status' }, matching.length
      ? `${place + 1} of ${matching.length}${wanted.length ? ' that match' : ''}` +
        (own.length < total && !wanted.length ? ` here, ${total} in all` : '')
      : `No utterance holds “${state.find}”; all are shown again when it is emptied.`));

  // On the audio clock the recording's end is the end; with compute the last word may come later.
  const ends = [line, ...(other ? [other] : [])].flatMap((each) => [each.duration_s,
    ...(clock === 'cu' ? [] : each.steps.map(([, seen]) => seen))]);
  const end = Math.max(...ends, 0.1);
  const lanes = [line, ...(other ? [other] : [])].map((each) => lane(each, clock, end));
  const play = el('button', { type: 'button', id: 'play' }, 'Play');
  const slider = el('input', { type: 'range', id: 'time', min: 0, max: end, step: 0.01,
    'aria-label': 'Time in the recording' });
  const reading = el('output', { for: 'time' });
  const spoken = el('dd', { id: 'spoken' });
  const seen = lanes.map(() => el('dd', { class: 'seen' }));
  const screen = el('dl', { class: 'screen' }, el('dt', {}, 'Spoken'), spoken,
    ...lanes.flatMap((each, n) => [el('dt', {}, `${each.cell.label} ${chunkText(each.cell)}` +
      (each.line.detected ? ` · ${each.line.detected}` : '')), seen[n]]));
  const sound = line.audio ? el('audio', { preload: 'auto' }) : null;
  const words = line.rows.filter((row) => row.word !== null);
  if (sound) setTimeout(() => { sound.src = soundOf(line.audio); }); // after the page is drawn
  let t = 0;
  let timer = 0;

  function show(time) {
    t = Math.min(Math.max(time, 0), end);
    slider.value = t;
    const over = t - line.duration_s;
    reading.textContent = `${t.toFixed(2)} s` +
      (over > 0.005 ? `, ${over.toFixed(2)} s after the recording` : '');
    if (!isLabelled(line)) {
      spoken.replaceChildren(el('span', { class: 'muted' }, 'no reference'));
    } else if (line.timed) {
      const first = words.findIndex((row) => row.start > t);
      const n = first < 0 ? words.length : first;
      const later = el('span', { class: 'later' },
        words.slice(n).map((row) => row.word).join(' '));
      spoken.replaceChildren(words.slice(0, n).map((row) => row.word).join(' ') + ' ', later);
      spoken.scrollTop = later.offsetTop - spoken.clientHeight / 2;
    } else spoken.textContent = line.reference;
    lanes.forEach((each, n) => {
      const now = each.show(t);
      seen[n].replaceChildren(now.text.slice(0, now.final),
        el('span', { class: 'partial' }, now.text.slice(now.final)));
      seen[n].scrollTop = seen[n].scrollHeight;
    });
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    if (sound) sound.pause();
    play.textContent = 'Play';
  }
  function start() {
    if (t >= end - 0.005) show(0);
    play.textContent = 'Pause';
    let before = performance.now();
    if (sound && t < (sound.duration || line.duration_s)) {
      sound.currentTime = t;
      sound.play().catch(() => { /* refused by the browser: the cursor moves in silence */ });
    }
    // Not an animation frame: those rest while the page is hidden, and the sound would run ahead.
    timer = setInterval(() => {
      const now = performance.now();
      // The sound is the clock while it plays; compute may go on after it ends.
      const playing = sound && !sound.paused && !sound.ended;
      show(playing ? sound.currentTime : t + (now - before) / 1000);
      before = now;
      if (t >= end) stop();
    }, 30);
  }
  play.addEventListener('click', () => { if (timer) stop(); else start(); });
  slider.addEventListener('input', () => {
    show(+slider.value);
    if (sound && timer) sound.currentTime = Math.min(t, sound.duration || t);
  });
  slider.addEventListener('change', () => remember({ t: t.toFixed(2) }));
  player = { stop };

  const key = (kind) => {
    const parts = {
      spoken: svg('rect', { x: 3, y: 3, width: 28, height: 8, rx: 2, fill: 'var(--spoken)' }),
      shown: svg('circle', { cx: 17, cy: 7, r: 4, fill: 'var(--ground)', stroke: 'var(--ink)',
        'stroke-width': 1.8 }),
      changed: svg('line', { x1: 17, x2: 17, y1: 1, y2: 13, stroke: 'var(--change)',
        'stroke-width': 2.5 }),
      unsettled: svg('line', { x1: 0, x2: 34, y1: 7, y2: 7, stroke: 'var(--ink)',
        'stroke-width': 1.5, 'stroke-dasharray': '2 3' }),
      settled: svg('line', { x1: 0, x2: 34, y1: 7, y2: 7, stroke: 'var(--ink)',
        'stroke-width': 2.5 }),
      committed: svg('path', { d: 'M17,1.5l5.5,5.5l-5.5,5.5l-5.5,-5.5z', fill: 'var(--ink)' }),
    };
    return svg('svg', { viewBox: '0 0 34 14', 'aria-hidden': 'true' }, parts[kind]);
  };
  const legend = el('ul', { class: 'legend' }, ...[['spoken', 'spoken'], ['shown', 'first shown'],
    ['unsettled', 'will still change'], ['changed', 'changed'], ['settled', 'shown as it stays'],
    ['committed', 'committed']].map(([kind, text]) => el('li', {}, key(kind), text)));
  const silence = line.audio
    ? 'The sound is the stored recording: noise that a corpus mixes in when it loads is not in it.'
    : `No sound: ${line.silent || 'no recording'}; the cursor still moves.`;
  byId('timelines').replaceChildren(controls,
    browse,
    el('p', { class: 'muted' }, (line.why ? `Remarkable: ${line.why}. ` : '') + silence +
      (line.timed || !isLabelled(line) ? '' : ' This corpus has no word times.')),
    line.error ? el('p', {}, `This utterance failed: ${line.error}`) : '',
    el('div', { class: 'player' }, el('div', { class: 'bar' }, play, slider, reading), screen),
    ...lanes.flatMap((each, n) => [el('h3', {}, cellText(each.line.cell)),
      isLabelled(line) || other ? el('p', { class: isLabelled(line) ? 'diff' : 'diff other' },
        ...differences(each.line, lanes[1 - n]?.line)) : '',
      ...(isLabelled(line) ? [] : other ? [el('details', {}, el('summary', {}, 'With times'),
        transcript(each.line, show))] : [transcript(each.line, show)])]),
    el('p', { class: 'muted' }, isLabelled(line)
      ? 'Struck out: in the reference, and missing or another word here. Underlined in waves: the word in its place. ' +
        'WER forgives other spellings, as 7 for seven.'
      : 'No reference, so nothing is right or wrong here' + (other
        ? '; underlined in waves: not in the other text.' : '.')),
    el('details', { id: 'lanes', open: state.lanes ? '' : null, ontoggle: (event) => {
      remember({ lanes: event.target.open ? '1' : '' });
      event.target.querySelectorAll('.lanes').forEach(cue);
      show(t); // a long recording scrolls to where it is
    } }, el('summary', {}, 'Word by word: when each was spoken, shown and final'), legend,
    ...lanes.flatMap((each) => [el('h3', {}, cellText(each.line.cell)),
      el('div', { class: 'lanes', tabindex: 0, role: 'region',
        'aria-label': cellText(each.line.cell) }, each.canvas)])),
    ...(sound ? [sound] : []));
  show(Number.isFinite(+state.t) ? +state.t : 0);
  for (const node of document.querySelectorAll('.lanes')) cue(node);
  byId('details').textContent = JSON.stringify(data.cells[at].details, null, 1);
}

/* -- start ----------------------------------------------------------------------------------- */

const filter = byId('filter');
filter.value = state.filter || '';
byId('split').value = state.split || '';
byId('all').value = state.all || '';
const narrow = (changes) => { remember(changes); drawTable(); drawFigures(); };
filter.addEventListener('input', () => narrow({ filter: filter.value }));
byId('split').addEventListener('change', (event) => narrow({ split: event.target.value }));
byId('all').addEventListener('change', (event) => narrow({ all: event.target.value }));
drawTimelines();
drawTable();
drawFigures();
})();
