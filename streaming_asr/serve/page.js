/* The live page: methods on one's voice. app.py puts it into page.html. */
const byId = (id) => document.getElementById(id);
const RATE = 24000;
const token = new URLSearchParams(location.hash.slice(1)).get('token');
const headers = token ? { Authorization: 'Bearer ' + token } : {};

function el(name, attributes, ...children) {
  // text only ever enters as text nodes
  const node =
    name === 'svg' || attributes?.svg
      ? document.createElementNS('http://www.w3.org/2000/svg', name)
      : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key !== 'svg' && value !== false && value !== null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const shape = (name, attributes, ...children) =>
  el(name, { ...attributes, svg: true }, ...children);

function say(text, isBad) {
  byId('status').textContent = text;
  byId('status').classList.toggle('bad', Boolean(isBad));
}

/* -- theme ----------------------------------------------------------------------------------- */

const THEMES = ['auto', 'light', 'dark'];
let theme = 'auto';
byId('theme').addEventListener('click', () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId('theme').textContent = 'Theme: ' + theme;
});

/* -- methods and their panels ---------------------------------------------------------------- */

let names = [],
  models = {};
const languages = new Intl.DisplayNames(['en'], { type: 'language' });
const languageOf = ({ language }) =>
  language === 'detect' ? 'language detected' : languages.of(language);
const chosen = () => [...document.querySelectorAll('#methods input:checked')].map((b) => b.value);
const hue = (name) => `var(--c${names.indexOf(name) % 6})`;

async function loadMethods() {
  const answer = await fetch('v1/models', { headers });
  const told = await answer.json();
  if (!answer.ok) return say(told.error.message, true);
  names = told.data.map((model) => model.id);
  models = Object.fromEntries(told.data.map((model) => [model.id, model]));
  names.forEach((name, at) =>
    byId('methods').append(
      el(
        'label',
        {},
        el('input', { type: 'checkbox', value: name, checked: at < 2 ? '' : null }),
        ' ' + name,
      ),
    ),
  );
  showPanels(chosen());
}

let panels = {};
function showPanels(wanted) {
  panels = {};
  byId('panels').replaceChildren(
    ...wanted.map((name) => {
      const panel = {
        committed: el('span', {}),
        guess: el('span', { class: 'guess' }),
        figures: el('output', {}),
        notice: el('small', {}),
        words: [],
        points: [],
        compute: 0,
      };
      panels[name] = panel;
      return el(
        'section',
        { class: 'panel', style: `--hue: ${hue(name)}`, 'data-method': name, 'aria-label': name },
        el(
          'div',
          { class: 'head' },
          el('h2', {}, name),
          el(
            'span',
            {},
            [models[name].model, languageOf(models[name])].filter(Boolean).join(' · '),
          ),
          panel.figures,
          el('button', { type: 'button', onclick: () => copy(name) }, 'Copy'),
        ),
        el('p', {}, panel.committed, panel.guess),
        panel.notice,
      );
    }),
  );
  drawLag();
}

function showStep(step) {
  const panel = panels[step.method];
  if (step.retracted) panel.words.splice(-step.retracted);
  panel.words.push(...(step.delta.match(/\s*\S+/g) || []));
  panel.committed.textContent = panel.words.join('').trimStart();
  panel.guess.textContent = step.partial;
  panel.compute += step.step_s;
  panel.points.push([step.audio_s, step.behind_s]);
  const language = step.language ? step.language + ' · ' : '';
  panel.figures.textContent =
    `${language}${step.behind_s.toFixed(2)} s behind · step ` +
    `${Math.round(step.step_s * 1000)} ms · RTF ${(panel.compute / step.audio_s).toFixed(2)}`;
  panel.notice.textContent = step.notice || '';
  const text = panel.committed.parentNode;
  text.scrollTop = text.scrollHeight;
  drawLag();
}

async function copy(name) {
  try {
    await navigator.clipboard.writeText(panels[name].committed.textContent);
    say(`The committed text of ${name} is in the clipboard.`);
  } catch (error) {
    say(`The browser does not allow copying here: ${error.message}`, true);
  }
}

/* 0 and one to three round numbers up to `most`. */
function roundTicks(most) {
  const power = 10 ** Math.floor(Math.log10(most / 3));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= most / 3);
  const n = Math.floor(most / step) + 1;
  return Array.from({ length: n }, (_, k) => +(k * step).toPrecision(3));
}

function drawLag() {
  const figure = byId('lag');
  const width = figure.clientWidth || 700,
    height = 176,
    left = 56,
    bottom = 22;
  const points = Object.values(panels).flatMap((panel) => panel.points);
  const maxX = Math.max(5, ...points.map((p) => p[0]));
  const maxY = Math.max(0.5, ...points.map((p) => p[1]));
  const x = (s) => left + ((width - left - 8) * s) / maxX;
  const y = (s) => height - bottom - ((height - bottom - 10) * s) / maxY;
  figure.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const lines = roundTicks(maxY).flatMap((s) => [
    shape('line', { class: 'grid', x1: left, x2: width - 8, y1: y(s), y2: y(s) }),
    shape('text', { x: left - 6, y: y(s) + 4, 'text-anchor': 'end' }, `${s} s`),
  ]);
  for (const s of roundTicks(maxX)) {
    lines.push(
      shape(
        'text',
        {
          x: x(s),
          y: height - 6,
          'text-anchor': s === 0 ? 'start' : x(s) > width - 30 ? 'end' : 'middle',
        },
        `${s} s`,
      ),
    );
  }
  const curves = Object.entries(panels).map(([name, panel]) =>
    shape('polyline', {
      style: `stroke: ${hue(name)}`,
      points: panel.points.map((p) => `${x(p[0])},${y(p[1])}`).join(' '),
      'stroke-dasharray': names.indexOf(name) % 2 ? '6 3' : null,
    }),
  );
  figure.replaceChildren(...lines, ...curves);
}
addEventListener('resize', drawLag);

/* -- a session ------------------------------------------------------------------------------- */

const WORKLET = `registerProcessor('tap', class extends AudioWorkletProcessor {
  constructor() {
    super();
    this.held = new Float32Array(960);
    this.n = 0;
    this.port.onmessage = () => {
      this.port.postMessage(this.held.slice(0, this.n));
      this.port.postMessage(null);
      this.isOver = true;
    };
  }
  process([input]) {
    const channels = this.isOver ? 0 : input.length;
    for (let i = 0; channels && i < input[0].length; i++) {
      let sum = 0;
      for (const channel of input) sum += channel[i];
      this.held[this.n++] = sum / channels;
      if (this.n === this.held.length) { this.port.postMessage(this.held.slice()); this.n = 0; }
    }
    return !this.isOver;
  }
})`;

function pcm(samples) {
  const bytes = new DataView(new ArrayBuffer(samples.length * 2));
  samples.forEach((s, i) => bytes.setInt16(2 * i, Math.max(-1, Math.min(1, s)) * 32767, true));
  return btoa(String.fromCharCode(...new Uint8Array(bytes.buffer)));
}

let session = null;

async function begin(openSource) {
  if (session) return;
  const wanted = chosen();
  if (!wanted.length) return say('Tick a method first.', true);
  showPanels(wanted);
  byId('logs').replaceChildren();
  const mine = { ended: false };
  session = mine;
  running(true);
  try {
    mine.context = new AudioContext({ sampleRate: RATE });
    await mine.context.resume();
    const module = URL.createObjectURL(new Blob([WORKLET], { type: 'text/javascript' }));
    await mine.context.audioWorklet.addModule(module);
    URL.revokeObjectURL(module);
    const source = await openSource(mine);
    await connect(mine, wanted);
    const tap = new AudioWorkletNode(mine.context, 'tap', { numberOfOutputs: 0 });
    // A session in which nothing comes is closed; an empty piece is something.
    mine.alive = setInterval(
      () => mine.paused && send(mine, { type: 'input_audio_buffer.append', audio: '' }),
      10000,
    );
    tap.port.onmessage = ({ data }) => {
      if (!mine.paused) showLevel(data || []);
      if (data === null) send(mine, { type: 'input_audio_buffer.commit' });
      else if (data.length) send(mine, { type: 'input_audio_buffer.append', audio: pcm(data) });
    };
    mine.tap = tap;
    source.connect(tap);
    if (source.start) source.start();
    say('Listening.');
  } catch (error) {
    finish(mine);
    say(
      error.name === 'NotAllowedError'
        ? 'The browser does not allow the microphone here.'
        : error.name === 'NotFoundError'
          ? 'There is no microphone; play a file instead.'
          : String(error.message || error),
      true,
    );
  }
}

function showLevel(samples) {
  const power = samples.reduce((sum, s) => sum + s * s, 0) / samples.length;
  byId('level').value = power ? 10 * Math.log10(power) : -60; // dB of full scale
  byId('level').title = `${Math.round(byId('level').value)} dB`;
}

async function pause() {
  if (!session?.tap || session.ended) return;
  const mine = session;
  mine.paused = !mine.paused;
  byId('pause').textContent = mine.paused ? 'Go on' : 'Pause';
  showLevel([]);
  say(mine.paused ? 'Paused: no audio is sent.' : 'Listening.');
  await (mine.paused ? mine.context.suspend() : mine.context.resume());
}

function connect(mine, wanted) {
  const address = new URL('v1/realtime', location.href);
  address.protocol = address.protocol.replace('http', 'ws');
  address.hash = '';
  address.searchParams.set('model', wanted.join(','));
  const protocols = ['realtime', ...(token ? ['openai-insecure-api-key.' + token] : [])];
  const socket = new WebSocket(address, protocols);
  mine.socket = socket;
  return new Promise((resolve, reject) => {
    socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === 'session.created') {
        mine.id = event.session.id;
        send(mine, {
          type: 'session.update',
          session: {
            type: 'transcription',
            include: ['streaming_asr.steps'],
            audio: { input: { format: { type: 'audio/pcm', rate: RATE } } },
          },
        });
        resolve();
      } else if (event.type === 'streaming_asr.steps') showStep(event);
      else if (event.type === 'streaming_asr.logged') logged(mine, wanted, event.kept);
      else if (event.type === 'error' || event.type.endsWith('.failed')) {
        mine.told = event.error.message;
        say(mine.told, true);
        if (mine.ended && event.error.code === 'input_audio_buffer_commit_empty') finish(mine);
      }
    };
    socket.onclose = (event) => {
      reject(new Error(mine.told || 'The server refused the connection.'));
      if (!mine.told && !mine.ended) say(`The server closed the session. ${event.reason}`, true);
      finish(mine);
    };
  });
}

function send(mine, event) {
  if (mine.socket?.readyState === WebSocket.OPEN) mine.socket.send(JSON.stringify(event));
}

async function stop() {
  if (!session || session.ended) return;
  if (session.paused) await pause();
  session.ended = true;
  say('Finishing.');
  session.tracks?.forEach((track) => track.stop());
  if (session.tap && session.socket.readyState === WebSocket.OPEN) session.tap.port.postMessage(0);
  else finish(session);
}

const FILES = { 'text.txt': 'text', 'subtitles.srt': 'subtitles', 'events.jsonl': 'log' };

function logged(mine, wanted, kept) {
  if (kept.text) {
    byId('logs').replaceChildren(
      ...wanted.map((name) =>
        el(
          'span',
          {},
          `Download of ${name}:`,
          ...Object.entries(FILES).map(([file, label]) =>
            el(
              'button',
              { type: 'button', 'data-file': file, onclick: () => download(mine.id, name, file) },
              label,
            ),
          ),
        ),
      ),
    );
  }
  const isStopped = mine.ended; // by the user; otherwise by the server
  mine.ended = true;
  mine.socket.close();
  for (const name of wanted) {
    const panel = panels[name];
    const heard = panel.points.length ? panel.points[panel.points.length - 1][0] : 0;
    if (!panel.words.length)
      panel.notice.textContent = `No speech found in ${Math.round(heard)} s.`;
  }
  const end = isStopped ? 'Done.' : 'The server stopped and ended the session.';
  say(
    kept.text
      ? `${end} The server has kept the text and the times, not the sound.`
      : 'The log could not be written; the server has kept nothing.',
    !kept.text || !isStopped,
  );
}

async function download(id, name, file) {
  const answer = await fetch(`v1/sessions/${id}/${encodeURIComponent(name)}/${file}`, { headers });
  if (!answer.ok) return say((await answer.json()).error.message, true);
  const url = URL.createObjectURL(await answer.blob());
  el('a', { href: url, download: `${id}-${name}-${file}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function finish(mine) {
  mine.ended = true;
  clearInterval(mine.alive);
  showLevel([]);
  mine.tracks?.forEach((track) => track.stop());
  if (mine.context?.state !== 'closed') mine.context?.close();
  if (mine.socket?.readyState < 2) mine.socket.close();
  if (session === mine) {
    session = null;
    running(false);
  }
}

function running(isRunning) {
  byId('microphone').disabled = byId('file').disabled = isRunning;
  byId('methods').disabled = isRunning;
  byId('stop').disabled = byId('pause').disabled = !isRunning;
  byId('pause').textContent = 'Pause';
}

/* -- sources --------------------------------------------------------------------------------- */

byId('microphone').addEventListener('click', () =>
  begin(async (mine) => {
    if (!navigator.mediaDevices) throw new Error('The microphone needs localhost or https.');
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
    mine.tracks = stream.getTracks();
    return mine.context.createMediaStreamSource(stream);
  }),
);

function play(file) {
  if (file)
    begin(async (mine) => {
      let buffer;
      try {
        buffer = await mine.context.decodeAudioData(await file.arrayBuffer());
      } catch {
        throw new Error(`${file.name}: is no audio that this browser reads.`);
      }
      const source = mine.context.createBufferSource();
      source.buffer = buffer;
      source.connect(mine.context.destination);
      source.onended = () => setTimeout(stop, 300);
      return source;
    });
}
byId('file').addEventListener('change', (event) => {
  play(event.target.files[0]);
  event.target.value = '';
});
byId('pause').addEventListener('click', pause);
byId('stop').addEventListener('click', stop);
addEventListener('dragover', (event) => {
  event.preventDefault();
  document.body.classList.add('dropping');
});
addEventListener('dragleave', () => document.body.classList.remove('dropping'));
addEventListener('drop', (event) => {
  event.preventDefault();
  document.body.classList.remove('dropping');
  play(event.dataTransfer.files[0]);
});
byId('methods').addEventListener('change', () => {
  if (!session) showPanels(chosen());
});
loadMethods().catch((error) => say(String(error), true));
