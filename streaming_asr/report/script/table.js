/* The table of results, and which runs differ. */
import {
  actions,
  byId,
  chunkText,
  colour,
  cue,
  data,
  el,
  format,
  hasTimelines,
  nothing,
  remember,
  runs,
  splits,
  state,
  visibleCells,
} from './state.js';

/* -- the table ------------------------------------------------------------------------------- */

const textColumns = [
  { name: 'label', heading: 'Method', value: (cell) => cell.label, text: true },
  { name: 'chunk', heading: 'Chunk', value: (cell) => cell.chunk_s, title: 'audio per step' },
  { name: 'split', heading: 'Data', value: (cell) => cell.split, text: true },
].filter((column) => column.name !== 'split' || splits.length > 1);
const numberColumns = data.columns.map((column) => ({
  ...column,
  value: (cell) => cell.metrics[column.name] ?? null,
}));
byId('split').parentElement.style.display = splits.length > 1 ? '' : 'none';
byId('split').append(
  el('option', { value: '' }, 'all'),
  ...splits.map((split) => el('option', { value: split }, split || 'unnamed')),
);

function intervalText(cell, column) {
  const range = cell.intervals[column.name];
  if (!range) return null;
  const [low, high] = range.map((value) => format(value, column.digits));
  return `95 % interval ${low} to ${high}, over ${cell.drawn}`;
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
byId('all').append(
  el('option', { value: '' }, 'headline'),
  ...groups.map((group) => el('option', { value: group }, group)),
  el('option', { value: '1' }, 'all'),
);

/** The columns chosen, less those of which no run has a number. */
function shownColumns(cells) {
  const chosen = numberColumns.filter(
    (column) => state.all === '1' || (state.all ? column.group === state.all : column.headline),
  );
  const measured = chosen.filter((column) => cells.some((cell) => column.value(cell) !== null));
  return measured.length ? measured : chosen.slice(0, 1);
}
const MOST_COLUMNS = 16; // of more metrics each is a row and each run a column
function valueCell(cell, column) {
  return el(
    'td',
    { class: cell.wins.includes(column.name) ? 'best' : null, title: intervalText(cell, column) },
    cell.texts[column.name] ?? format(column.value(cell), column.digits),
  );
}

const nameOf = (cell) =>
  [cell.label, chunkText(cell), splits.length > 1 ? cell.split : ''].filter(Boolean).join(' ');

/** The table with a row for each metric, under the names of their groups. */
function drawTransposed(cells, visible) {
  const head = el(
    'tr',
    {},
    el('th', { scope: 'col', class: 'text' }, 'Metric'),
    ...cells.map((cell) => el('th', { scope: 'col' }, nameOf(cell))),
  );
  const rows = groups.flatMap((group) => {
    const mine = visible.filter((column) => column.group === group);
    return mine.length
      ? [
          el('tr', {}, el('th', { class: 'text', colspan: cells.length + 1 }, group)),
          ...mine.map((column) =>
            el(
              'tr',
              {},
              el(
                'td',
                { class: 'text label', title: column.title },
                column.heading.replaceAll('\n', ' '),
              ),
              ...cells.map((cell) => valueCell(cell, column)),
            ),
          ),
        ]
      : [];
  });
  byId('results').classList.add('transposed');
  byId('results').replaceChildren(el('thead', {}, head), el('tbody', {}, ...rows));
  byId('count').textContent = `${runs(cells.length)}, ${visible.length} metrics`;
  byId('notes').textContent = '';
  cue(byId('results').parentElement);
}

export function drawTable() {
  const cells = visibleCells();
  const visible = shownColumns(cells);
  const columns = [...textColumns, ...visible];
  // A note is shown once below the table: of all runs, or with a number.
  const common = cells.length
    ? cells[0].notes.filter((note) => cells.every((cell) => cell.notes.includes(note)))
    : [];
  const numbered = [...new Set(cells.flatMap((cell) => cell.notes))].filter(
    (note) => !common.includes(note),
  );
  const remarks = (cell) =>
    [
      ...(cell.error ? ['failed: ' + cell.error] : []),
      ...cell.notes
        .map((note) => numbered.indexOf(note))
        .filter((at) => at >= 0)
        .map((at) => `[${at + 1}]`),
    ].join(' ');
  const hasNotes = cells.some(remarks);
  const [sortName, sortDirection] = (state.sort || '').split(':');
  const order = (column) =>
    column.name !== sortName ? 'none' : sortDirection === 'desc' ? 'descending' : 'ascending';
  if (visible.length > MOST_COLUMNS) return drawTransposed(cells, visible);
  byId('results').classList.remove('transposed');
  const head = el(
    'tr',
    {},
    ...columns.map((column) =>
      el(
        'th',
        {
          scope: 'col',
          'aria-sort': order(column),
          class: column.text ? 'text' : null,
          title: column.title,
        },
        el(
          'button',
          {
            type: 'button',
            'data-sort': column.name,
            onclick: () => {
              const next = order(column) === 'ascending' ? 'desc' : 'asc';
              remember({ sort: `${column.name}:${next}` });
              drawTable();
              byId('results')
                .querySelector(`[data-sort="${CSS.escape(column.name)}"]`)
                .focus();
            },
          },
          column.heading,
        ),
      ),
    ),
    hasNotes ? el('th', { scope: 'col', class: 'text' }, 'Notes') : null,
  );
  const rows = sorted(cells, columns).map((cell) => {
    const notes = remarks(cell);
    const at = data.cells.indexOf(cell);
    const name = hasTimelines(at)
      ? el(
          'button',
          { type: 'button', title: 'show its utterances', onclick: () => actions.choose(at) },
          cell.label + (cell.best ? ' *' : ''),
        )
      : el('span', {}, cell.label + (cell.best ? ' *' : ''));
    const swatch = el('span', { class: 'swatch' });
    swatch.style.background = colour(cell);
    return el(
      'tr',
      {
        'data-cell': cell.name,
        class:
          [
            cell.error ? 'failed' : '',
            cell.best ? 'first' : '',
            String(at) === state.cell ? 'selected' : '',
          ]
            .join(' ')
            .trim() || null,
      },
      el('td', { class: 'text label', title: cell.name }, swatch, name),
      el('td', {}, chunkText(cell)),
      splits.length > 1 ? el('td', { class: 'text' }, cell.split) : null,
      ...visible.map((column, n) => {
        // In the first column, since the notes may be a long way to the right.
        if (cell.error && !n) return el('td', {}, 'failed');
        return valueCell(cell, column);
      }),
      hasNotes ? el('td', { class: notes.length > 20 ? 'notes long' : 'notes' }, notes) : null,
    );
  });
  const none = el('tr', {}, el('td', { class: 'text', colspan: columns.length + 1 }, nothing()));
  byId('results').replaceChildren(
    el('thead', {}, head),
    el('tbody', {}, ...(rows.length ? rows : [none])),
  );
  byId('count').textContent =
    cells.length === data.cells.length
      ? runs(cells.length)
      : `${cells.length} of ${runs(data.cells.length)}`;
  const below = common.length
    ? [`${cells.length > 1 ? 'All runs: ' : ''}${common.join('; ')}.`]
    : [];
  byId('notes').textContent = [
    ...below,
    ...numbered.map((note, at) => `[${at + 1}] ${note}.`),
  ].join('\n');
  cue(byId('results').parentElement);
}
