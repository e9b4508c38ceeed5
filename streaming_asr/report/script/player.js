/* The player: what was on the screen when, with the sound. */
import {
  actions,
  byId,
  chunkText,
  colour,
  cue,
  data,
  el,
  isNarrow,
  lines,
  remember,
  short,
  state,
  svg,
  timelinesOf,
} from './state.js';
import { linearTicks } from './figures.js';

/* -- timelines: what was on the screen when -------------------------------------------------- */

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
  return line.steps.map(([heard, seen, nKept, added, final]) => {
    text = text.slice(0, nKept) + added;
    return { heard, seen, text, final };
  });
}

// A text that was aligned to time the words is no reference to count errors against.
const isLabelled = (line) => line.reference.trim() !== '' && data.cells[line.cell].labelled;

/** Two words of one key are equal, whatever their case and marks. */
const keyOf = (word) => word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
const finals = (each) => each.rows.map((row) => row.final).filter((word) => word !== null);

const isWrong = (row) => row.kind !== 'hit' && row.kind !== 'forgiven';

/** The words of a line against its reference: a wrong word underlined in waves, what it should be
 * struck out; without one against the other text, where they differ. */
function differences(line, other) {
  if (isLabelled(line)) {
    return line.rows.map((row) =>
      el(
        'span',
        {},
        row.word !== null && isWrong(row) ? el('del', { title: 'reference' }, row.word) : '',
        row.kind === 'substitution' ? ' ' : '',
        row.final === null
          ? ''
          : !isWrong(row)
            ? row.final
            : el('ins', { title: row.kind }, row.final),
        ' ',
      ),
    );
  }
  const mine = finals(line);
  const theirs = finals(other || line).map(keyOf);
  const length = mine.map(() => Array.from({ length: theirs.length + 1 }, () => 0));
  length.push(Array.from({ length: theirs.length + 1 }, () => 0)); // of the longest common rest
  for (let i = mine.length - 1; i >= 0; i--) {
    for (let j = theirs.length - 1; j >= 0; j--) {
      length[i][j] =
        keyOf(mine[i]) === theirs[j]
          ? length[i + 1][j + 1] + 1
          : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  let j = 0;
  return mine.map((word, i) => {
    while (j < theirs.length && keyOf(word) !== theirs[j] && length[i][j + 1] === length[i][j]) j++;
    const isSame = j < theirs.length && keyOf(word) === theirs[j];
    if (isSame) j++;
    return el('span', {}, isSame ? word : el('ins', { title: 'not in the other' }, word), ' ');
  });
}

function lane(line, clock, end) {
  const cell = data.cells[line.cell];
  const steps = screens(line);
  const when = (k) => (clock === 'cu' ? steps[k].heard : steps[k].seen);
  const height = 24 + line.rows.length * ROW + 6;
  const isLong = end > LONG_S;
  const width = isLong ? LEFT + RIGHT + end * LONG_SCALE : LANE;
  const x = (s) => LEFT + (s / end) * (width - LEFT - RIGHT);
  const canvas = svg('svg', {
    viewBox: `0 0 ${width} ${height}`,
    role: 'img',
    width: isLong ? width : null,
    'aria-label':
      `${cell.label} ${chunkText(cell)}: when each word was spoken, shown, ` +
      'changed and committed',
  });
  for (const tick of linearTicks(0, end, isLong ? end / 2 : 12).ticks) {
    if (tick > end) continue;
    canvas.append(
      svg('line', { class: 'grid', x1: x(tick), x2: x(tick), y1: 20, y2: height }),
      svg('text', { class: 'faint', x: x(tick), y: 13, 'text-anchor': 'middle' }, `${tick} s`),
    );
  }
  if (!isLong) {
    canvas.append(
      svg(
        'text',
        { class: 'faint', x: LANE, y: 13, 'text-anchor': 'end' },
        isLabelled(line) || line.timed ? 'after end' : 'final at',
      ),
    );
  }
  const audioEnd = svg('line', {
    x1: x(line.duration_s),
    x2: x(line.duration_s),
    y1: 16,
    y2: height,
    stroke: 'var(--muted)',
    'stroke-dasharray': '1 3',
  });
  audioEnd.append(svg('title', {}, `the audio ends at ${line.duration_s.toFixed(2)} s`));
  canvas.append(audioEnd);
  line.rows.forEach((row, at) => {
    const y = 24 + at * ROW + ROW / 2;
    const group = svg('g', {});
    // In a long recording a word stands at its time, where the scrolled view shows it.
    const first = Math.min(row.start ?? end, row.changes.length ? when(row.changes[0][0]) : end);
    const label = svg('text', {
      x: (isLong ? x(first) : LEFT) - 10,
      y: y + 4,
      'text-anchor': 'end',
    });
    const margin = (text, faint) =>
      svg(
        'text',
        {
          class: faint,
          y: y + 4,
          x: isLong ? x(Math.max(row.end, committed ?? 0)) + 10 : LANE,
          'text-anchor': isLong ? null : 'end',
        },
        text,
      );
    const wrong = isLabelled(line) && isWrong(row);
    if (!wrong && row.final === null) return;
    if (row.word !== null && wrong) {
      label.append(svg('tspan', { class: 'struck' }, short(row.word, 11)));
    }
    if (wrong && row.kind === 'substitution') label.append(' ');
    if (row.final !== null)
      label.append(
        svg(
          'tspan',
          { class: wrong ? 'bad' : null },
          (wrong && row.kind === 'insertion' ? '+ ' : '') + short(row.final, 11),
        ),
      );
    const facts = [];
    if (row.word !== null && isLabelled(line)) facts.push(`reference: ${row.word}`);
    if (row.final !== null) facts.push(`final text: ${row.final}`);
    if (wrong) facts.push(row.kind);
    group.append(label);
    if (row.start !== null) {
      facts.push(`spoken ${row.start.toFixed(2)}–${row.end.toFixed(2)} s`);
      group.append(
        svg('rect', {
          x: x(row.start),
          y: y - 5,
          rx: 2,
          height: 10,
          width: Math.max(x(row.end) - x(row.start), 1.5),
          fill: 'var(--spoken)',
        }),
      );
    }
    const committed = row.committed === null ? null : when(row.committed);
    const until = committed ?? end;
    row.changes.forEach(([k, text], n) => {
      const from = when(k);
      const to = n + 1 < row.changes.length ? when(row.changes[n + 1][0]) : until;
      facts.push(
        `${from.toFixed(2)} s: ${n ? 'changed to' : 'first shown as'} ` +
          (text ? `“${text}”` : 'nothing'),
      );
      const settled = n + 1 === row.changes.length;
      if (text && to > from) {
        group.append(
          svg('line', {
            x1: x(from),
            x2: x(to),
            y1: y,
            y2: y,
            stroke: colour(cell),
            'stroke-width': settled ? 2.5 : 1.5,
            'stroke-dasharray': settled ? null : '2 3',
          }),
        );
      }
      if (n) {
        group.append(
          svg('line', {
            x1: x(from),
            x2: x(from),
            y1: y - 6,
            y2: y + 6,
            stroke: 'var(--change)',
            'stroke-width': 2.5,
          }),
        );
      }
    });
    if (row.changes.length) {
      group.append(
        svg('circle', {
          cx: x(when(row.changes[0][0])),
          cy: y,
          r: 4,
          fill: 'var(--ground)',
          stroke: colour(cell),
          'stroke-width': 1.8,
        }),
      );
    }
    if (committed !== null) {
      facts.push(`committed ${committed.toFixed(2)} s`);
      group.append(
        svg('path', {
          fill: colour(cell),
          d: `M${x(committed)},${y - 5.5}l5.5,5.5l-5.5,5.5l-5.5,-5.5z`,
        }),
      );
      if (row.kind === 'unjudged' && !line.timed) group.append(margin(`${committed.toFixed(2)} s`));
      else if (row.end !== null) {
        const late = committed - row.end;
        group.append(
          margin(`${late < 0 ? '−' : '+'}${Math.abs(late).toFixed(2)} s`, wrong ? 'faint' : null),
        );
      }
    } else if (row.kind === 'deletion') {
      group.append(margin('missed', 'bad'));
    }
    group.append(
      svg('rect', { x: 0, y: y - ROW / 2, width, height: ROW, fill: 'transparent' }),
      svg('title', {}, facts.join('\n')),
    );
    canvas.append(group);
  });
  const cursor = svg('line', { class: 'cursor', y1: 16, y2: height });
  canvas.append(cursor);
  return {
    line,
    cell,
    canvas,
    show(t) {
      cursor.setAttribute('x1', x(t));
      cursor.setAttribute('x2', x(t));
      const view = canvas.parentElement;
      if (isLong && view) {
        const row = line.rows.findLastIndex((each) => each.start !== null && each.start <= t);
        view.scrollTo(x(t) - view.clientWidth / 2, 24 + row * ROW - view.clientHeight / 2);
      }
      let now = { text: '', final: 0 };
      steps.forEach((step, k) => {
        if (when(k) <= t) now = step;
      });
      return now;
    },
  };
}

const pick = (id, label, options, onchange) =>
  el(
    'label',
    {},
    label + ' ',
    el('select', { id, onchange: (event) => onchange(event.target.value) }, ...options),
  );
const cellText = (at) => {
  const cell = data.cells[at];
  return [cell.label, chunkText(cell), cell.split].filter(Boolean).join(' · ');
};
const clockText = (s) => `${Math.floor(s / 60)}:${(s % 60).toFixed(1).padStart(4, '0')}`;

/** The text of a line with the times its pieces begin at; a click goes there. */
function transcript(line, go) {
  return el(
    'ol',
    { class: 'said' },
    ...line.said.map(([start, text]) =>
      el(
        'li',
        {},
        start === null
          ? ''
          : el('button', { type: 'button', onclick: () => go(start) }, clockText(start)),
        ' ' + text,
      ),
    ),
  );
}

const textOf = (line) => line.said.map(([, text]) => text).join(' ');

const option = (value, text, isSelected) => el('option', { value, selected: isSelected }, text);

/** The sign of the legend for `kind`. */
const sign = (kind) => {
  const parts = {
    spoken: svg('rect', { x: 3, y: 3, width: 28, height: 8, rx: 2, fill: 'var(--spoken)' }),
    shown: svg('circle', {
      cx: 17,
      cy: 7,
      r: 4,
      fill: 'var(--ground)',
      stroke: 'var(--ink)',
      'stroke-width': 1.8,
    }),
    changed: svg('line', {
      x1: 17,
      x2: 17,
      y1: 1,
      y2: 13,
      stroke: 'var(--change)',
      'stroke-width': 2.5,
    }),
    unsettled: svg('line', {
      x1: 0,
      x2: 34,
      y1: 7,
      y2: 7,
      stroke: 'var(--ink)',
      'stroke-width': 1.5,
      'stroke-dasharray': '2 3',
    }),
    settled: svg('line', {
      x1: 0,
      x2: 34,
      y1: 7,
      y2: 7,
      stroke: 'var(--ink)',
      'stroke-width': 2.5,
    }),
    committed: svg('path', { d: 'M17,1.5l5.5,5.5l-5.5,5.5l-5.5,-5.5z', fill: 'var(--ink)' }),
  };
  return svg('svg', { viewBox: '0 0 34 14', 'aria-hidden': 'true' }, parts[kind]);
};

/** What the page shows: the run, its utterances that match the search, one of them, and the run next to it. */
function selection(cells) {
  const first = data.shown_first.filter((each) => cells.includes(each));
  const at = state.cell && cells.includes(+state.cell) ? +state.cell : (first[0] ?? cells[0]);
  const utterances = timelinesOf(at);
  const terms = (state.find || '').toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (each) =>
    terms.every((word) =>
      `${each.utt} ${each.speaker || ''} ${each.reference} ${each.why} ${textOf(each)}`
        .toLowerCase()
        .includes(word),
    );
  const matching = utterances.filter(holds);
  const line =
    matching.find((each) => each.utt === state.utt) ||
    matching[0] ||
    utterances.find((each) => each.utt === state.utt) ||
    utterances[0];
  const others = data.timelines.filter(
    (each) =>
      each.utt === line.utt &&
      each.cell !== at &&
      data.cells[each.cell].split === data.cells[at].split,
  );
  const usual = others.find((each) => first.includes(each.cell)) || others[0];
  const other =
    state.with === 'none'
      ? undefined
      : others.find((each) => String(each.cell) === state.with) || usual;
  const clock = state.clock === 'cu' ? 'cu' : data.clock;
  return { cells, at, utterances, terms, matching, line, others, other, clock };
}

function change(key, value) {
  remember({ [key]: value, t: '' });
  drawTimelines();
}

/** The menus of the run, of the run next to it, and of the clock. */
function runControls({ cells, at, others, other, clock }) {
  return el(
    'div',
    { class: 'controls' },
    pick(
      'cell',
      'Run',
      cells.map((k) => option(k, cellText(k), k === at)),
      (value) => actions.choose(+value),
    ),
    others.length
      ? pick(
          'with',
          'Next to',
          [
            option('none', 'no other', !other),
            ...others.map((each) => option(each.cell, cellText(each.cell), each === other)),
          ],
          (value) => change('with', value),
        )
      : null,
    data.clock === 'ca'
      ? pick(
          'clock',
          'Clock',
          [
            option('', 'with compute (as seen)', clock === 'ca'),
            option('cu', 'audio only', clock === 'cu'),
          ],
          (value) => change('clock', value),
        )
      : null,
  );
}

/** The search over utterances, their menu, and the buttons to the ones before and after. */
function browseControls({ at, utterances, terms, matching, line }) {
  const place = matching.indexOf(line);
  const turn = (by) =>
    el(
      'button',
      {
        type: 'button',
        id: by < 0 ? 'before' : 'next',
        'aria-label': by < 0 ? 'utterance before' : 'next utterance',
        disabled: !matching[place + by] && '',
        onclick: () => {
          change('utt', matching[place + by].utt);
          byId(by < 0 ? 'before' : 'next').focus();
        },
      },
      by < 0 ? '‹' : '›',
    );
  const total = data.cells[at].details.n_utterances ?? utterances.length;
  return el(
    'div',
    { class: 'controls' },
    el(
      'label',
      {},
      'Find ',
      el('input', {
        type: 'search',
        id: 'find',
        value: state.find || '',
        placeholder: 'words, name, speaker',
        oninput: (event) => {
          const caret = event.target.selectionStart;
          change('find', event.target.value);
          byId('find').focus();
          byId('find').setSelectionRange(caret, caret);
        },
      }),
    ),
    pick(
      'utt',
      'Utterance',
      matching.map((each) =>
        option(
          each.utt,
          [short(each.utt, 28), each.why || short(each.reference || textOf(each), 40)].join(': '),
          each === line,
        ),
      ),
      (value) => change('utt', value),
    ),
    turn(-1),
    turn(1),
    el(
      'span',
      { class: 'muted', id: 'matches', role: 'status' },
      matching.length
        ? `${place + 1} of ${matching.length}${terms.length ? ' that match' : ''}` +
            (utterances.length < total && !terms.length ? ` here, ${total} in all` : '')
        : `No utterance holds “${state.find}”; all are shown again when it is emptied.`,
    ),
  );
}

const joined = (rows) => rows.map((row) => row.word).join(' ');

/** What was spoken and what each run shows at a time: its element, and the function that draws it. */
function screenOf(line, lanes) {
  const words = line.rows.filter((row) => row.word !== null);
  const spoken = el('dd', { id: 'spoken' });
  const seen = lanes.map(() => el('dd', { class: 'seen' }));
  const node = el(
    'dl',
    { class: 'screen' },
    el('dt', {}, 'Spoken'),
    spoken,
    ...lanes.flatMap((each, n) => [
      el(
        'dt',
        {},
        `${each.cell.label} ${chunkText(each.cell)}` +
          (each.line.detected ? ` · ${each.line.detected}` : ''),
      ),
      seen[n],
    ]),
  );
  function show(t) {
    if (!isLabelled(line)) {
      spoken.replaceChildren(el('span', { class: 'muted' }, 'no reference'));
    } else if (line.timed) {
      const next = words.findIndex((row) => row.start > t);
      const n = next < 0 ? words.length : next;
      const later = el('span', { class: 'later' }, joined(words.slice(n)));
      spoken.replaceChildren(joined(words.slice(0, n)) + ' ', later);
      spoken.scrollTop = later.offsetTop - spoken.clientHeight / 2;
    } else spoken.textContent = line.reference;
    lanes.forEach((each, n) => {
      const now = each.show(t);
      seen[n].replaceChildren(
        now.text.slice(0, now.final),
        el('span', { class: 'partial' }, now.text.slice(now.final)),
      );
      seen[n].scrollTop = seen[n].scrollHeight;
    });
  }
  return { node, show };
}

/** The button, the slider and the sound: `show(t)` moves all of them and the screen to a time. */
function playerOf(line, end, screen) {
  const play = el('button', { type: 'button', id: 'play' }, 'Play');
  const slider = el('input', {
    type: 'range',
    id: 'time',
    min: 0,
    max: end,
    step: 0.01,
    'aria-label': 'Time in the recording',
  });
  const reading = el('output', { for: 'time' });
  const sound = line.audio ? el('audio', { preload: 'auto' }) : null;
  if (sound)
    setTimeout(() => {
      sound.src = soundOf(line.audio);
    }); // after the page is drawn
  let t = 0;
  let timer = 0;

  function show(time) {
    t = Math.min(Math.max(time, 0), end);
    slider.value = t;
    const over = t - line.duration_s;
    reading.textContent =
      `${t.toFixed(2)} s` + (over > 0.005 ? `, ${over.toFixed(2)} s after the recording` : '');
    screen.show(t);
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
      sound.play().catch(() => {
        /* refused by the browser: the cursor moves in silence */
      });
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
  play.addEventListener('click', () => {
    if (timer) stop();
    else start();
  });
  slider.addEventListener('input', () => {
    show(+slider.value);
    if (sound && timer) sound.currentTime = Math.min(t, sound.duration || t);
  });
  slider.addEventListener('change', () => remember({ t: t.toFixed(2) }));
  return { play, slider, reading, screen: screen.node, sound, show, now: () => show(t), stop };
}

function lanesLegend() {
  return el(
    'ul',
    { class: 'legend' },
    ...[
      ['spoken', 'spoken'],
      ['shown', 'first shown'],
      ['unsettled', 'will still change'],
      ['changed', 'changed'],
      ['settled', 'shown as it stays'],
      ['committed', 'committed'],
    ].map(([kind, text]) => el('li', {}, sign(kind), text)),
  );
}

/** The text of a run against the reference, or against the other run where there is none. */
function textOfLane(line, other, show) {
  const nodes = [el('h3', {}, cellText(line.cell))];
  if (isLabelled(line) || other)
    nodes.push(
      el('p', { class: isLabelled(line) ? 'diff' : 'diff other' }, ...differences(line, other)),
    );
  if (isLabelled(line)) return nodes;
  const timed = transcript(line, show);
  return [...nodes, other ? el('details', {}, el('summary', {}, 'With times'), timed) : timed];
}

/** The lanes of all words, folded until somebody opens them. */
function wordByWord(lanes, now) {
  return el(
    'details',
    {
      id: 'lanes',
      open: state.lanes ? '' : null,
      ontoggle: (event) => {
        remember({ lanes: event.target.open ? '1' : '' });
        event.target.querySelectorAll('.lanes').forEach(cue);
        now(); // a long recording scrolls to where it is
      },
    },
    el('summary', {}, 'Word by word: when each was spoken, shown and final'),
    lanesLegend(),
    ...lanes.flatMap((each) => [
      el('h3', {}, cellText(each.line.cell)),
      el(
        'div',
        { class: 'lanes', tabindex: 0, role: 'region', 'aria-label': cellText(each.line.cell) },
        each.canvas,
      ),
    ]),
  );
}

export function drawTimelines() {
  if (player) player.stop();
  player = null;
  const cells = [...lines.keys()];
  if (!cells.length) {
    byId('timelines').replaceChildren(
      el(
        'p',
        { class: 'muted' },
        'No event logs next to these results, or only recordings of more than 10 minutes: nothing to draw.',
      ),
    );
    return;
  }
  const shown = selection(cells);
  const { at, line, other, clock } = shown;

  // On the audio clock the recording's end is the end; with compute the last word may come later.
  const ends = [line, ...(other ? [other] : [])].flatMap((each) => [
    each.duration_s,
    ...(clock === 'cu' ? [] : each.steps.map(([, seen]) => seen)),
  ]);
  const end = Math.max(...ends, 0.1);
  const lanes = [line, ...(other ? [other] : [])].map((each) => lane(each, clock, end));
  player = playerOf(line, end, screenOf(line, lanes));
  const silence = line.audio
    ? 'The sound is the stored recording: noise that a corpus mixes in when it loads is not in it.'
    : `No sound: ${line.silent || 'no recording'}; the cursor still moves.`;
  byId('timelines').replaceChildren(
    runControls(shown),
    browseControls(shown),
    el(
      'p',
      { class: 'muted' },
      (line.why ? `Remarkable: ${line.why}. ` : '') +
        silence +
        (line.timed || !isLabelled(line) ? '' : ' This corpus has no word times.'),
    ),
    line.error ? el('p', {}, `This utterance failed: ${line.error}`) : '',
    el(
      'div',
      { class: 'player' },
      el('div', { class: 'bar' }, player.play, player.slider, player.reading),
      player.screen,
    ),
    ...lanes.flatMap((each, n) => textOfLane(each.line, lanes[1 - n]?.line, player.show)),
    el(
      'p',
      { class: 'muted' },
      isLabelled(line)
        ? 'Struck out: in the reference, and missing or another word here. Underlined in waves: the word in its place. ' +
            'Spellings that WER forgives are not marked.'
        : 'No reference, so nothing is right or wrong here' +
            (other ? '; underlined in waves: not in the other text.' : '.'),
    ),
    wordByWord(lanes, player.now),
    ...(player.sound ? [player.sound] : []),
  );
  // In the middle, so that there is text before anyone presses Play.
  player.show(state.t && Number.isFinite(+state.t) ? +state.t : line.duration_s / 2);
  for (const node of document.querySelectorAll('.lanes')) cue(node);
  byId('details').textContent = JSON.stringify(data.cells[at].details, null, 1);
}
