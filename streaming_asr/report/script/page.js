/* What redraws several parts, and the start. */
import { actions, byId, remember, state } from './state.js';
import { drawTable } from './table.js';
import { drawFigures } from './figures.js';
import { drawTimelines } from './player.js';

actions.choose = (at) => {
  remember({ cell: String(at), t: '' });
  drawTable();
  drawTimelines();
  byId('timeline-title').scrollIntoView({ behavior: 'instant', block: 'start' });
};
actions.narrow = (changes) => {
  remember(changes);
  drawTable();
  drawFigures();
};
for (const id of ['filter', 'split', 'all']) {
  byId(id).value = state[id] || '';
  byId(id).addEventListener(id === 'filter' ? 'input' : 'change', () =>
    actions.narrow({ [id]: byId(id).value }),
  );
}
drawTimelines();
drawTable();
drawFigures();
