// Draws everything.

const hasSeries = Object.keys(data.series).length > 0;

function draw() {
  tip.hide();
  if (hasSeries) drawLearning();
  if (data.map) drawMap();
  drawRounds();
  if (data.battery) drawBatteries();
  if (data.labels) drawLabels();
}

if (hasSeries) learningSwitches();
page(draw, ".shield, #learning svg");
