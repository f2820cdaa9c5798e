package hex.tree.xgboost.predict;

import hex.ModelMetrics;
import hex.tree.xgboost.XGBoostModel;
import hex.tree.xgboost.XGBoostOutput;
import water.fvec.Frame;
import water.udf.CFuncRef;

/**
 * Stands in for H2O's class of the same name, which predicts all training and validation rows in Java after
 * the last tree, only for metrics that nobody reads here. These are metrics of no row. The early stop and the
 * learning curve use XGBoost's own metric, which H2O keeps apart; predictions do not pass here.
 *
 * <p>H2O stores the trees in the model just before it asks for these metrics, so the question must be
 * answered: a job that is cancelled to avoid it leaves a model without trees. Found first because this jar
 * opens the class path.
 */
public class XGBoostModelMetrics {
  private final XGBoostOutput output;
  private final Frame data;
  private final Frame originalData;
  private final XGBoostModel model;

  public XGBoostModelMetrics(
      XGBoostOutput output,
      Frame data,
      Frame originalData,
      boolean isTrain,
      XGBoostModel model,
      CFuncRef customMetric) {
    this.output = output;
    this.data = data;
    this.originalData = originalData;
    this.model = model;
  }

  /** Metrics of no row: not a number, each of them. */
  public ModelMetrics compute() {
    return model
        .makeMetricBuilder(output.classNames())
        .makeModelMetrics(model, originalData, data, null);
  }
}
