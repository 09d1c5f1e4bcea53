// The whole page: all rows, the mask, all numbers, the theme.
// Entropy and saturation: a line of cells for each head.
const rowMaps = [];
function buildRowMaps() {
  for (const [id, what, name, striped] of [['entropy', 'entropy', 'entropy share', 'no two keys to choose from, or NaN'],
                                           ['saturation', 'peak', 'largest weight', 'no number']]) {
    const grid = new Grid($(id), id === 'entropy' ? 'Entropy of every row' : 'Largest weight of every row');
    const line = Math.min(Math.max(420 / Math.max(heads.length, 1), 3), 14);
    const show = () => grid.show({ rows: heads.length, columns: mapRows, rowHeight: line, colours: 'share', limit: 900,
      index: (r, c) => indexIn(of(heads[r], what)[c], 0, 1),
      rowNames: line >= 9 ? heads.map(head => `L${head.layer} H${head.head}`) : [],
      columnNames: data.queries > 1 ? ['query 0', String(data.queries - 1)] : [],
      describe: (r, c) => `${headName(heads[r])}, ` +
        reachText('query', 'queries', reachOf(c, mapRows, data.queries), namedRow) +
        `: ${name} ${digits(of(heads[r], what)[c])}`,
      hint: 'A line for each head; choose one to see it above.', pick: r => chooseHead(r) });
    rowMaps.push(() => { show(); paintLegend($(id + '-legend'), 'share', '0', name, '1', striped); });
  }
}

// Full sight is as far into the palette as is pleasant for areas.
const kFullMask = 1.8;
let visible = null, tiles = null;
function buildMask() {
  const { mask } = data;
  $('mask-card').hidden = !mask;
  if (!mask) return;
  const all = mask.tiles_computed + mask.tiles_skipped;
  const none = 'There are no tiles: the head size is 0.';
  $('mask-text').textContent = 'Of the first layer and head. ' + (all === 0 ? none
    : `Tiles of ${mask.tile_rows} queries × ${mask.tile_keys} keys in all layers and heads: ${mask.tiles_computed} of ` +
      `${all} computed, ${mask.tiles_skipped} skipped.`);
  const share = floatsOf(mask.visible.cells);
  // The map is of one head; of the others their scores tell. Those of NaN rows are not counted.
  const seesAll = head => head.histogram.reduce((sum, one) => sum + one, 0) === data.queries * data.keys;
  if (!mask.tiles_skipped && share.every(one => one === 1) && heads.length === data.heads_in_all && heads.every(seesAll)) {
    $('mask-text').textContent = 'Nothing is hidden: every query sees every key. ' +
      (all === 0 ? none : all === 1 ? 'The one tile is computed.' : `All ${all} tiles are computed.`);
    $('mask-pair').hidden = true;
    return;
  }
  visible = new Grid($('visible'), 'Share of visible pairs');
  const aspect = map => Math.min(Math.max(map.rows / map.columns, 0.3), 2);
  rowMaps.push(() => visible.show({ rows: mask.visible.rows, columns: mask.visible.columns, colours: 'share',
    limit: 340, aspect: aspect(mask.visible), index: (r, c) => share[r * mask.visible.columns + c] > 0
      ? indexIn(share[r * mask.visible.columns + c], 0, kFullMask) : 0,
    describe: (r, c) => reachText('Query', 'Queries', reachOf(r, mask.visible.rows, data.queries), namedRow) +
      ' → ' + reachText('key', 'keys', reachOf(c, mask.visible.columns, data.keys), named) +
      `: ${percent(share[r * mask.visible.columns + c])} visible`,
    hint: 'Share of visible pairs, the more the stronger; striped: none.' }));
  $('computed').hidden = !mask.computed;
  if (!mask.computed) return;
  const done = floatsOf(mask.computed.cells);
  tiles = new Grid($('computed'), 'Tiles of the computation');
  rowMaps.push(() => tiles.show({ rows: mask.computed.rows, columns: mask.computed.columns, colours: 'share',
    limit: 340, aspect: aspect(mask.visible), index: (r, c) => done[r * mask.computed.columns + c] > 0 ? indexIn(1, 0, kFullMask) : 0,
    describe: (r, c) => `Tile of queries ${r * mask.tile_rows} on, keys ${c * mask.tile_keys} on: ` +
      (done[r * mask.computed.columns + c] > 0 ? 'computed' : 'skipped'),
    hint: 'Tiles of the computation; striped ones are skipped.' }));
}

// A name that may go on in the next line after each underscore.
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((part, i) => i ? [make('wbr'), part] : [part]);
}

// All numbers of all heads, in the order of any column.
function buildTable() {
  const sortBy = column => {
    const same = state.sort && state.sort.column === column;
    state.sort = { column, order: same ? -state.sort.order : -1 };
    fillTable();
  };
  $('all-head').replaceChildren(...['head', ...data.numbers.map(number => number.name)].map((name, i) =>
    make('th', { scope: 'col', title: i ? `${data.numbers[i - 1].title} (${data.numbers[i - 1].unit || 'no unit'})` : '' },
      make('button', { type: 'button', onclick: () => sortBy(i - 1) }, ...breakable(name),
        i && data.numbers[i - 1].unit ? make('small', {}, data.numbers[i - 1].unit) : null))));
  fillTable();
}
function fillTable() {
  const order = heads.map((_, i) => i);
  const { column, order: sign } = state.sort || {};
  if (state.sort && column >= 0) {
    const value = i => heads[i].numbers[column] ?? -Infinity;
    order.sort((a, b) => sign * (value(a) - value(b)) || a - b);
  } else if (state.sort && sign > 0) order.reverse();
  [...$('all-head').children].forEach((cell, i) => {
    const here = state.sort && column === i - 1;
    cell.setAttribute('aria-sort', here ? (sign > 0 ? 'ascending' : 'descending') : 'none');
  });
  $('all').replaceChildren(...order.map(i => make('tr', {},
    make('th', { scope: 'row' }, make('button', { type: 'button', onclick: () => {
      chooseHead(i); $('detail').scrollIntoView(); } }, `L${heads[i].layer} H${heads[i].head}`)),
    ...heads[i].numbers.map(number => make('td', {}, digits(number))))));
}

function paintAll() {
  paintPoster();
  if (heads.length) showHead();
  rowMaps.forEach(show => show());
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $('theme').setAttribute('aria-pressed', String(name === 'dark'));
}

function start() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  setTheme(dark.matches ? 'dark' : 'light');
  dark.addEventListener('change', () => { setTheme(dark.matches ? 'dark' : 'light'); paintAll(); });
  $('theme').addEventListener('click', () => { setTheme(theme() === 'dark' ? 'light' : 'dark'); paintAll(); });
  document.title = `heed inspect: ${data.source}`;
  $('source').textContent = data.source;
  $('sentence').textContent = data.sentence;
  $('facts').replaceChildren(...[`${data.layers} × ${counted(data.heads, 'head', 'heads')}` + (heads.length < data.heads_in_all
      ? `, of ${data.heads_in_all}: others had no room in this page` : ''), counted(data.queries, 'query', 'queries'),
    counted(data.keys, 'key', 'keys'), `head size ${data.head_size}`, data.settings || 'no options',
    wholeCells ? 'a cell is one weight' : `maps of ${mapRows} × ${mapColumns} cells`]
    .map(fact => make('li', {}, fact)));
  for (const input of document.querySelectorAll('input[name=mode]')) {
    input.addEventListener('change', () => { state.mode = input.value; paintPoster(); showMap(chosen()); });
  }
  $('row').addEventListener('change', event => chooseRow(Number(event.target.value), false));
  buildPoster();
  buildRowMaps();
  buildMask();
  buildTable();
  $('nothing').hidden = heads.length > 0;
  $('found').hidden = !heads.length;
  paintPoster();
  if (heads.length) chooseHead(data.first);
  rowMaps.forEach(show => show());
  let width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === width || !heads.length) return;
    width = innerWidth;
    showRow(chosen());
    paintHistogram($('histogram'), chosen());
    paintDistances($('distance'), chosen());
  });
  document.documentElement.dataset.ready = 'yes';
}
start();
