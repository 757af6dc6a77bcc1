import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Loss

rows = torch.randn(64, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=8)
network = torch.nn.Linear(4, 1)
loss = torch.nn.functional.mse_loss
trainer = create_supervised_trainer(network, torch.optim.SGD(network.parameters(), lr=0.05), loss)
evaluator = create_supervised_evaluator(network, metrics={"nll": Loss(loss)})
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(loader))
