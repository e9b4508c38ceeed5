/* What the parts of the page share: its data, elements, colours, the view in the address. */

export const data = JSON.parse(document.getElementById('data').textContent);
export const byId = (id) => document.getElementById(id);
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
export const el = (name, attributes, ...children) => make(false, name, attributes, children);
export const svg = (name, attributes, ...children) => make(true, name, attributes, children);

/** Says below a part that is wider than the screen that it scrolls. */
export function cue(node) {
  const mark = () => node.classList.toggle('more', node.scrollWidth > node.clientWidth + 4);
  requestAnimationFrame(mark);
  if (!node.dataset.cued) addEventListener('resize', mark);
  node.dataset.cued = '1';
}

/* -- state, kept in the address so that a view can be sent to someone ------------------------ */

export const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
export function remember(changes) {
  Object.assign(state, changes);
  for (const key of Object.keys(state)) if (!state[key]) delete state[key];
  try {
    history.replaceState(null, '', '#' + new URLSearchParams(state));
  } catch {
    /* a viewer that forbids it loses only the link */
  }
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
const KNOWN = {
  whisperrt: 0,
  ufal: 1,
  simul_whisper: 2,
  hush_word: 3,
  star: 4,
  u2: 5,
  chunkformer: 6,
  offline: 7,
  reencode: 8,
};
const methods = [...new Set(data.cells.map((cell) => cell.method))];
const free = [0, 1, 2, 3, 4, 5, 6].filter((at) => !methods.some((name) => KNOWN[name] === at));
const hues = {};
for (const name of methods) hues[name] = KNOWN[name] ?? free.shift() ?? 7;
export const colour = (cell) => `var(--c${hues[cell.method]})`;
const SHAPES = ['circle', 'square', 'triangle', 'diamond', 'cross'];
export const DASHES = ['', '6 3', '2 3', '8 3 2 3', '12 4'];
export const seriesKey = (cell) => cell.label;
const variants = {};
for (const cell of data.cells) {
  const list = (variants[cell.method] ??= []);
  if (!list.includes(cell.variant)) list.push(cell.variant);
}
export const variantAt = (cell) => variants[cell.method].indexOf(cell.variant) % SHAPES.length;

export function marker(cell, x, y, size, isGrey) {
  const fill = {
    fill: isGrey ? 'var(--beaten)' : colour(cell),
    stroke: isGrey ? colour(cell) : 'var(--ground)',
    'stroke-width': 1,
  };
  const s = size || 5;
  const path = {
    square: `M${x - s},${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
    triangle: `M${x},${y - s * 1.2}l${s * 1.2},${s * 2.1}h${-s * 2.4}z`,
    diamond:
      `M${x},${y - s * 1.3}l${s * 1.3},${s * 1.3}l${-s * 1.3},${s * 1.3}` +
      `l${-s * 1.3},${-s * 1.3}z`,
    cross:
      `M${x - s},${y - 1.8}h${s - 1.8}v${1.8 - s}h3.6v${s - 1.8}h${s - 1.8}v3.6h${1.8 - s}` +
      `v${s - 1.8}h-3.6v${1.8 - s}h${1.8 - s}z`,
  }[SHAPES[variantAt(cell)]];
  return path ? svg('path', { d: path, ...fill }) : svg('circle', { cx: x, cy: y, r: s, ...fill });
}

export const format = (value, digits) => {
  if (value === null || value === undefined) return '–';
  if (digits !== null && digits !== undefined) return value.toFixed(digits);
  return Number.isInteger(value) ? String(value) : String(+value.toPrecision(4));
};
export const chunkText = (cell) => cell.chunk;

/* -- what the parts share ------------------------------------------------------------------- */

/** What a click in one part does to others: choose(run), narrow(changes). page.js defines both. */
export const actions = {};

export const splits = [...new Set(data.cells.map((cell) => cell.split))];
export const isNarrow = matchMedia('(max-width: 40rem)').matches; // drawn as wide as shown: type keeps its size
export const short = (text, n) => (text.length > n ? text.slice(0, n - 1) + '…' : text);

export const lines = new Map();
for (const line of data.timelines) {
  if (!lines.has(line.cell)) lines.set(line.cell, []);
  lines.get(line.cell).push(line);
}
export const timelinesOf = (at) => lines.get(at) || [];
export const hasTimelines = (at) => lines.has(at);

/** The runs that the filter and the choice of data leave. */
export function visibleCells() {
  const words = (state.filter || '').toLowerCase().split(/\s+/).filter(Boolean);
  return data.cells.filter((cell) => {
    if (state.split && cell.split !== state.split) return false;
    const text = [
      cell.name,
      cell.label,
      chunkText(cell),
      cell.split,
      cell.error || '',
      ...cell.notes,
    ]
      .join(' ')
      .toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

export const runs = (n) => (n === 1 ? '1 run' : `${n} runs`);

/** The sentence for a filter that no run matches, with a button that empties it. */
export const nothing = () =>
  el(
    'p',
    { class: 'muted nothing' },
    `No run matches “${state.filter || ''}”${state.split ? ' in ' + state.split : ''}. `,
    el(
      'button',
      {
        type: 'button',
        onclick: () => {
          byId('filter').value = byId('split').value = '';
          actions.narrow({ filter: '', split: '' });
        },
      },
      'Show all',
    ),
  );
